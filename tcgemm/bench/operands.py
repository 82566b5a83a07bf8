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

LAYOUTS = ("TN", "NN", "TT", "NT")
DTYPES = {row.name: row.torch for row in dtypes.TABLE}
ALIGNMENT = 512  # bytes, as from torch's CUDA allocator
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


@dataclass
class Operands:
    """The sets of a, b and out of one problem; index i is one call's worth."""

    a: Pool
    b: Pool
    out: Pool

    @classmethod
    def build(cls, layout, m, n, k, *, dtype, device, batch=1, sets=None):
        """Uninitialised; call `normal` or `integers` next. batch > 1 gives 3-D operands."""
        if layout not in LAYOUTS:
            raise ValueError(f"layout {layout!r} is none of {', '.join(LAYOUTS)}.")
        lead = (batch,) if batch > 1 else ()
        sizes = batch * (m * k + k * n + m * n) * dtype.itemsize
        sets = sets or rotation(sizes, device)
        return cls(
            a=Pool(sets, (*lead, m, k), dtype, device, transposed=layout[1] == "T"),
            b=Pool(sets, (*lead, k, n), dtype, device, transposed=layout[0] == "T"),
            out=Pool(sets, (*lead, m, n), dtype, device),
        )

    @property
    def sets(self):
        return len(self.out)

    def normal(self, generator=None):
        """Normal data in a and b; zeros would run faster than real data, on an H200 by 13 %."""
        for pool in (self.a, self.b):
            pool.memory.normal_(generator=generator)
        return self

    def integers(self, largest=4, generator=None):
        """Whole numbers of at most `largest` in a and b, whose products and sums are exact."""
        for pool in (self.a, self.b):
            pool.memory.random_(-largest, largest + 1, generator=generator)
        return self

    def poison(self):
        """NaN in every output, so that an element nobody wrote cannot pass for a result."""
        self.out.memory.fill_(math.nan)
        return self
