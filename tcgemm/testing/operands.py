"""Random operands in every layout, in as many copies as it takes to leave the cache.

The letters are those of the BLAS call that torch makes, b first; a is (M, K), b is (K, N):

    TN   a row-major            b = w(N, K).t()
    NN   a row-major            b row-major
    TT   a = x(K, M).t()        b = w(N, K).t()
    NT   a = x(K, M).t()        b row-major

A timed call that finds its operands in L2 measures L2. So each call of a run takes the next of
`sets` copies, which together are larger than twice the cache. All copies of one operand live in
one allocation, each on a 512-byte boundary, because a copy that started at an odd address would
change the kernel that is chosen.
"""

import math
from dataclasses import dataclass

import torch

from tcgemm import dtypes
from tcgemm.sparse import compress24

LAYOUTS = ("TN", "NN", "TT", "NT")
# tf32 is the name of a product, not of a tensor: float32 operands that are rounded on their way.
DTYPES = {row.name: row.torch for row in dtypes.TABLE} | {"tf32": torch.float32}
ALIGNMENT = 512  # bytes, as from torch's CUDA allocator
CHUNK = 1 << 27  # elements of 8 bits that are made at a time, from float32
SPREAD = 20  # the largest exponent of spread data, up and down
MOST_SETS = 4096  # a graph has a node for each; more would take longer to capture than to run


def cache_bytes(device):
    """The cache that a rotation has to leave: L2 on a GPU; 0 on the CPU, where two sets do."""
    if torch.device(device).type != "cuda":
        return 0
    properties = torch.cuda.get_device_properties(device)
    return getattr(properties, "L2_cache_size", 0) or 60 << 20


def rotation(bytes_of_one_set, device):
    """How many sets of operands exceed twice the cache, at least 2."""
    wanted = math.ceil(2 * cache_bytes(device) / max(1, bytes_of_one_set)) + 1
    return min(MOST_SETS, max(2, wanted))


class Pool:
    """`sets` matrices of one shape; `transposed` ones are stored with the last two dims swapped."""

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
    """Normal data in any dtype: float8 rounds it, integers are quantised by their largest."""
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


def powers(exponents):
    """2^exponents in float32, exact for whole ones (which exp2 of float32 need not be)."""
    return exponents.double().exp2_().float()


def fill_spread(memory, generator=None):
    """Normal data, each element times another 2^x, x uniform in [-SPREAD, SPREAD]."""
    for row in memory:
        exponents = torch.rand(row.shape, generator=generator, device=row.device)
        row.normal_(generator=generator).mul_(powers((2 * exponents - 1) * SPREAD))


def fill_integers(memory, largest, generator=None):
    """Whole numbers of at most this magnitude; from 0 where there is no sign."""
    lowest = 0 if memory.dtype == torch.uint8 else -largest
    if memory.is_floating_point() and memory.element_size() == 1:  # float8 has no random_
        for part in memory.split(max(1, CHUNK // memory.shape[1])):
            whole = torch.empty(part.shape, dtype=torch.int8, device=part.device)
            part.copy_(whole.random_(lowest, largest + 1, generator=generator).float())
    else:
        memory.random_(lowest, largest + 1, generator=generator)


@dataclass
class Operands:
    """The sets of a, b and out of one problem; index i is one call's worth."""

    a: Pool
    b: Pool
    out: Pool

    @classmethod
    def build(cls, layout, m, n, k, *, dtype, device, batch=1, sets=None, result=None):
        """Uninitialised; call `normal` or `integers` next. batch > 1 gives 3-D operands.

        result: the dtype of `out`, by default that of dtypes.result(dtype).
        """
        if layout not in LAYOUTS:
            raise ValueError(f"layout {layout!r} is none of {', '.join(LAYOUTS)}.")
        lead = (batch,) if batch > 1 else ()
        result = result or dtypes.result(dtype)
        sizes = batch * ((m * k + k * n) * dtype.itemsize + m * n * result.itemsize)
        sets = sets or rotation(sizes, device)
        return cls(
            a=Pool(sets, (*lead, m, k), dtype, device, transposed=layout[1] == "T"),
            b=Pool(sets, (*lead, k, n), dtype, device, transposed=layout[0] == "T"),
            out=Pool(sets, (*lead, m, n), result, device),
        )

    @property
    def sets(self):
        return len(self.out)

    def normal(self, generator=None):
        """Normal data in a and b; zeros would run faster than real data, on an H200 by 13 %."""
        for pool in (self.a, self.b):
            fill_normal(pool.memory, generator)
        return self

    def spread(self, generator=None):
        """Elements of a row that lie too far apart for f16, even after scaling, in a and b."""
        for pool in (self.a, self.b):
            fill_spread(pool.memory, generator)
        return self

    def integers(self, largest=4, generator=None, *, spread=False):
        """Whole numbers of at most `largest` in a and b, whose products and sums are exact.

        spread: times 2^s in a and 2^-s in b, another s for each k: the same products of elements
        that lie far apart.
        """
        for pool in (self.a, self.b):
            fill_integers(pool.memory, largest, generator)
        if spread:
            k, device = self.a[0].shape[-1], self.a.memory.device
            exponents = torch.randint(-SPREAD, SPREAD + 1, (k,), generator=generator, device=device)
            for index in range(self.sets):
                self.a[index].mul_(powers(exponents))
                self.b[index].mul_(powers(-exponents).unsqueeze(-1))
        return self

    def prune(self):
        """Half of b becomes zero, of row-major matrices (N, K) = b.t(); returns these compressed,
        a tcgemm.SparseTensor24 each: what else multiplies b multiplies the same.
        """
        weights = [compress24(b.t(), prune=True) for b in self.b.views]
        for b, weight in zip(self.b.views, weights, strict=True):
            b.copy_(weight.to_dense().t())
        return weights

    def poison(self):
        """NaN in every output, so that an element nobody wrote cannot pass for a result."""
        memory = self.out.memory
        memory.fill_(math.nan if memory.is_floating_point() else torch.iinfo(memory.dtype).min)
        return self
