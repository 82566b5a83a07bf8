"""Random operands in every layout, in as many copies as it takes to leave the cache.

A layout is two letters as in the BLAS call that torch makes, b first: T for a transposed view of a
row-major matrix, N for a row-major matrix. a is (M, K) and b is (K, N):

    TN   a row-major            b = w(N, K).t()
    NN   a row-major            b row-major
    TT   a = x(K, M).t()        b = w(N, K).t()
    NT   a = x(K, M).t()        b row-major

A timed call that finds its operands in L2 measures L2. So each call takes the next of `sets`
copies, which together are larger than twice the cache. All copies of one operand are in one
allocation, and each starts on a 512-byte boundary: a copy at an odd address would change which
kernel is chosen.
"""

import math
from dataclasses import dataclass

import torch

import tcgemm
from tcgemm import dtypes

LAYOUTS = ("TN", "NN", "TT", "NT")
# tf32 is no dtype of a tensor: it names a GEMM that rounds its float32 operands to tf32.
DTYPES = {row.name: row.torch for row in dtypes.TABLE} | {"tf32": torch.float32}
ALIGNMENT = 512  # bytes, as from torch's CUDA allocator
CHUNK = 1 << 27  # 8-bit elements that are filled at a time, by way of float32
SPREAD = 20  # spread data is multiplied by 2^-SPREAD to 2^SPREAD
MAX_SETS = 4096  # a CUDA graph has a node for each set; more would take longer to capture than run


def is_transposed(layout):
    """(a, b): is each operand a transposed view of a row-major matrix?"""
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r} is none of {', '.join(LAYOUTS)}.")
    return layout[1] == "T", layout[0] == "T"


def in_layout(layout, a, b):
    """Copies of a and b, or a and b themselves, with the strides of the layout."""
    pairs = zip((a, b), is_transposed(layout), strict=True)
    return tuple(x.mT.contiguous().mT if flip else x.contiguous() for x, flip in pairs)


def cache_bytes(device):
    """The size of the cache that the sets must exceed: L2 on a GPU; 0 on the CPU."""
    if torch.device(device).type != "cuda":
        return 0
    properties = torch.cuda.get_device_properties(device)
    return getattr(properties, "L2_cache_size", 0) or 60 << 20


def sets_past_cache(bytes_of_one_set, device):
    """How many sets of operands exceed twice the cache, at least 2."""
    wanted = math.ceil(2 * cache_bytes(device) / max(1, bytes_of_one_set)) + 1
    return min(MAX_SETS, max(2, wanted))


class Pool:
    """`sets` matrices of one shape. If `transposed`, the last two dims are swapped in memory."""

    def __init__(self, sets, shape, dtype, device, *, transposed=False):
        stored = (*shape[:-2], shape[-1], shape[-2]) if transposed else tuple(shape)
        size = math.prod(stored)
        step = ALIGNMENT // dtype.itemsize
        pitch = max(step, (size + step - 1) // step * step)
        self.memory = torch.empty((sets, pitch), dtype=dtype, device=device)
        views = [row[:size].view(stored) for row in self.memory]
        self.views = [v.transpose(-1, -2) for v in views] if transposed else views

    def __getitem__(self, index):
        return self.views[index]

    def __len__(self):
        return len(self.views)


def fill_normal(memory, generator=None):
    """Normal data. float8 rounds it; integers are scaled so that the largest is 127."""
    if memory.is_floating_point() and memory.element_size() > 1:
        memory.normal_(generator=generator)
        return
    for part in memory.split(max(1, CHUNK // memory.shape[1])):
        wide = torch.empty(part.shape, dtype=torch.float32, device=part.device)
        wide.normal_(generator=generator)
        if not memory.is_floating_point():
            wide.mul_(127.0 / wide.abs().max()).round_()
            wide.add_(128.0 if memory.dtype == torch.uint8 else 0.0)
        part.copy_(wide)


def powers_of_two(exponents):
    """2^exponents in float32, exact for integers. exp2 in float32 need not be exact."""
    return exponents.double().exp2_().float()


def fill_spread(memory, generator=None):
    """Normal data; each element is multiplied by its own 2^x, x uniform in [-SPREAD, SPREAD]."""
    for row in memory:
        exponents = torch.rand(row.shape, generator=generator, device=row.device)
        row.normal_(generator=generator).mul_(powers_of_two((2 * exponents - 1) * SPREAD))


def fill_integers(memory, largest, generator=None):
    """Integers of at most this magnitude; uint8 has those from 0."""
    lowest = 0 if memory.dtype == torch.uint8 else -largest
    if memory.is_floating_point() and memory.element_size() == 1:  # random_ has no float8
        for part in memory.split(max(1, CHUNK // memory.shape[1])):
            whole = torch.empty(part.shape, dtype=torch.int8, device=part.device)
            part.copy_(whole.random_(lowest, largest + 1, generator=generator).float())
    else:
        memory.random_(lowest, largest + 1, generator=generator)


@dataclass
class Operands:
    """The sets of a, b and out of one problem. A call takes a[i], b[i] and out[i]."""

    a: Pool
    b: Pool
    out: Pool

    @classmethod
    def build(cls, layout, m, n, k, *, dtype, device, batch=1, sets=None, result=None):
        """Uninitialised operands; call `normal` or `integers` next. batch > 1 makes them 3-D.

        result: the dtype of `out`, by default that of dtypes.result(dtype).
        """
        transposed_a, transposed_b = is_transposed(layout)
        lead = (batch,) if batch > 1 else ()
        result = result or dtypes.result(dtype)
        sizes = batch * ((m * k + k * n) * dtype.itemsize + m * n * result.itemsize)
        sets = sets or sets_past_cache(sizes, device)
        return cls(
            a=Pool(sets, (*lead, m, k), dtype, device, transposed=transposed_a),
            b=Pool(sets, (*lead, k, n), dtype, device, transposed=transposed_b),
            out=Pool(sets, (*lead, m, n), result, device),
        )

    @property
    def sets(self):
        return len(self.out)

    def normal(self, generator=None):
        """Normal data in a and b. Zeros would run faster than real data, by 13 % on an H200."""
        for pool in (self.a, self.b):
            fill_normal(pool.memory, generator)
        return self

    def spread(self, generator=None):
        """Rows of a and columns of b whose exponents differ by more than f16 holds, if scaled."""
        for pool in (self.a, self.b):
            fill_spread(pool.memory, generator)
        return self

    def integers(self, largest=4, generator=None, *, spread=False):
        """Integers of at most `largest` in a and b, so that products and sums are exact.

        spread: a is multiplied by 2^s and b by 2^-s, with another s for each k. The products stay
        the same, but the exponents of the elements differ widely.
        """
        for pool in (self.a, self.b):
            fill_integers(pool.memory, largest, generator)
        if spread:
            k, device = self.a[0].shape[-1], self.a.memory.device
            exponents = torch.randint(-SPREAD, SPREAD + 1, (k,), generator=generator, device=device)
            for index in range(self.sets):
                self.a[index].mul_(powers_of_two(exponents))
                self.b[index].mul_(powers_of_two(-exponents).unsqueeze(-1))
        return self

    def prune(self):
        """Prunes b to the 2:4 pattern and returns the weights b.t() as tcgemm.SparseTensor24.

        b keeps the zeros, so that dense GEMMs with b compute the same result.
        """
        weights = [tcgemm.compress24(b.t(), prune=True) for b in self.b.views]
        for b, weight in zip(self.b.views, weights, strict=True):
            b.copy_(weight.to_dense().t())
        return weights

    def poison(self):
        """Fills the outputs with NaN, so that an element that is not written is found."""
        memory = self.out.memory
        memory.fill_(math.nan if memory.is_floating_point() else torch.iinfo(memory.dtype).min)
        return self
