"""Random operands in every layout, in so many copies that they do not fit into the cache.

A layout is two letters as in the BLAS call that torch makes, b first: T is a transposed view of a
row-major matrix, N is a row-major matrix. a is (M, K) and b is (K, N):

    TN   a row-major            b = w(N, K).t()
    NN   a row-major            b row-major
    TT   a = x(K, M).t()        b = w(N, K).t()
    NT   a = x(K, M).t()        b row-major

A timed call that finds its operands in L2 measures L2. So each call takes the next of `sets`
copies, which together are larger than twice the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Generator, Tensor

import tcgemm
from tcgemm import dtypes
from tcgemm.operands.sparse.tensor import SparseTensor24
from tcgemm.typing import Layout

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
# tf32 is no dtype of a tensor. It names a GEMM that rounds its float32 operands to tf32.
DTYPES: dict[str, torch.dtype] = {row.name: row.torch for row in dtypes.TABLE} | {
    "tf32": torch.float32
}
CHUNK = 1 << 27  # 8-bit elements that are filled at a time; each takes four bytes of float32 then
SPREAD = 20  # spread data is multiplied by 2^-SPREAD to 2^SPREAD
MAX_SETS = 4096  # a CUDA graph has a node for each set: the capture of more takes longer than a run


def is_transposed(layout: Layout) -> tuple[bool, bool]:
    """(a, b): is each operand a transposed view of a row-major matrix?"""
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r} is none of {', '.join(LAYOUTS)}.")
    return layout[1] == "T", layout[0] == "T"


def in_layout(layout: Layout, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Copies of a and b with the strides of the layout, or a and b if they have them already."""
    pairs = zip((a, b), is_transposed(layout), strict=True)
    a, b = (x.mT.contiguous().mT if flip else x.contiguous() for x, flip in pairs)
    return a, b


def cache_bytes(device: torch.device | str) -> int:
    """The size of the cache that the sets must exceed: the L2 of a GPU, 0 on the CPU."""
    if torch.device(device).type != "cuda":
        return 0
    properties = torch.cuda.get_device_properties(device)
    return getattr(properties, "L2_cache_size", 0) or 60 << 20


def sets_past_cache(bytes_of_one_set: int, device: torch.device | str) -> int:
    """The number of operand sets that exceed twice the cache, at least 2 and at most MAX_SETS; 1 on
    "meta", which has no data."""
    if torch.device(device).type == "meta":
        return 1
    sets = math.ceil(2 * cache_bytes(device) / max(1, bytes_of_one_set)) + 1
    return min(MAX_SETS, max(2, sets))


class Pool(list[Tensor]):
    """`sets` matrices of one shape. If `transposed`, the last two dims are swapped in memory."""

    def __init__(
        self,
        sets: int,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device | str,
        *,
        transposed: bool = False,
    ) -> None:
        in_memory = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
        matrices = [torch.empty(in_memory, dtype=dtype, device=device) for _ in range(sets)]
        super().__init__(matrix.mT if transposed else matrix for matrix in matrices)


def _chunks(x: Tensor) -> Sequence[Tensor]:
    return x.split(max(1, CHUNK // max(1, x[0].numel())))


def fill_normal(x: Tensor, generator: Generator | None = None) -> None:
    """Fills with normal data, rounded for float8. Integers are scaled: the largest is 127."""
    if x.is_floating_point() and x.element_size() > 1:
        x.normal_(generator=generator)
        return
    for part in _chunks(x):
        wide = torch.empty_like(part, dtype=torch.float32).normal_(generator=generator)
        if not x.is_floating_point():
            wide.mul_(127.0 / wide.abs().max()).round_()
            wide.add_(128.0 if x.dtype == torch.uint8 else 0.0)
        part.copy_(wide)


def powers_of_two(exponents: Tensor) -> Tensor:
    """2^exponents in float32, exact for integer exponents. exp2 in float32 need not be exact."""
    return exponents.double().exp2_().float()


def fill_spread(x: Tensor, generator: Generator | None = None) -> None:
    """Fills with normal data, where each element is multiplied by its own 2^x, x uniform in
    [-SPREAD, SPREAD]."""
    exponents = torch.rand(x.shape, generator=generator, device=x.device)
    x.normal_(generator=generator).mul_(powers_of_two((2 * exponents - 1) * SPREAD))


def fill_integers(x: Tensor, largest: int, generator: Generator | None = None) -> None:
    """Fills with integers from -largest to largest, for uint8 from 0."""
    lowest = 0 if x.dtype == torch.uint8 else -largest
    if x.is_floating_point() and x.element_size() == 1:  # random_ has no float8
        for part in _chunks(x):
            integers = torch.empty_like(part, dtype=torch.int8)
            part.copy_(integers.random_(lowest, largest + 1, generator=generator).float())
    else:
        x.random_(lowest, largest + 1, generator=generator)


@dataclass
class Operands:
    """The operand sets a, b and out of one problem. A call takes a[i], b[i] and out[i].

    Example:
        >>> from tcgemm.measure.operands import Operands
        >>> data = Operands.build("TN", 64, 48, 32, dtype=torch.bfloat16, device="cpu").normal()
        >>> tcgemm.mm(data.a[0], data.b[0], out=data.out[0]).shape
        torch.Size([64, 48])
    """

    a: Pool
    b: Pool
    out: Pool

    @classmethod
    def build(
        cls,
        layout: Layout,
        m: int,
        n: int,
        k: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str,
        batch: int = 1,
        sets: int | None = None,
        result: torch.dtype | None = None,
    ) -> Operands:
        """Makes uninitialised operands: call `normal`, `spread` or `integers` next.

        Arguments:
            m, n, k (int): a is (m, k), b (k, n) and out (m, n).
            batch (int): above 1, the tensors have a batch dimension in front.
            sets (int): default: so many that they exceed twice the cache.
            result (torch.dtype): the dtype of out; default: dtypes.result(dtype).
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
    def sets(self) -> int:
        """The number of operand sets."""
        return len(self.out)

    def normal(self, generator: Generator | None = None) -> Operands:
        """Fills a and b with normal data. A GEMM of zeros would run faster, by 13 % on an H200."""
        for x in (*self.a, *self.b):
            fill_normal(x, generator)
        return self

    def spread(self, generator: Generator | None = None) -> Operands:
        """Fills a and b with data whose exponents differ within a row of a, or a column of b, by
        more than the exponents of f16: no scale of the row makes it fit."""
        for x in (*self.a, *self.b):
            fill_spread(x, generator)
        return self

    def integers(
        self, largest: int = 4, generator: Generator | None = None, *, spread: bool = False
    ) -> Operands:
        """Fills a and b with integers of at most `largest`, so that products and sums are exact.

        With `spread`, a is multiplied by 2^s and b by 2^-s, with another s for each k. The products
        stay the same, but the exponents of the elements differ widely.
        """
        for x in (*self.a, *self.b):
            fill_integers(x, largest, generator)
        if spread:
            k, device = self.a[0].shape[-1], self.a[0].device
            exponents = torch.randint(-SPREAD, SPREAD + 1, (k,), generator=generator, device=device)
            for a, b in zip(self.a, self.b, strict=True):
                a.mul_(powers_of_two(exponents))
                b.mul_(powers_of_two(-exponents).unsqueeze(-1))
        return self

    def prune(self) -> list[SparseTensor24]:
        """Prunes b to the 2:4 pattern and returns the weights b.t() as tcgemm.SparseTensor24.

        b gets the zeros as well, so that dense GEMMs with b compute the same result.
        """
        weights = [tcgemm.compress24(b.t(), prune=True) for b in self.b]
        for b, weight in zip(self.b, weights, strict=True):
            b.copy_(weight.to_dense().t())
        return weights

    def poison(self) -> Operands:
        """Fills the outputs with NaN, or the smallest integer, to find elements that no kernel
        writes."""
        for out in self.out:
            out.fill_(math.nan if out.is_floating_point() else torch.iinfo(out.dtype).min)
        return self
