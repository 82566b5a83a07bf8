"""The problem of an error report: its plan, and a sample of its rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tcgemm.measure.operands import in_layout
from tcgemm.numerics.data import check_distribution, draw
from tcgemm.typing import Layout, words

SAMPLE = 48  # rows and columns of the result that are computed


@dataclass
class Problem:
    """a and b decide the plan; the sample of them is multiplied.

    Attributes:
        a, b (Tensor): (M, K) and (K, N); on the device "meta" if only the sample has numbers.
        scale_a, scale_b (Tensor | None): as for tcgemm.mm.
        row, column (Tensor): which rows and columns of the result the sample has.
        rows, columns (Tensor): (rows, K) and (K, columns) on the CPU, stored as a and b are.
    """

    a: Tensor
    b: Tensor
    scale_a: Tensor | None
    scale_b: Tensor | None
    row: Tensor
    column: Tensor
    rows: Tensor
    columns: Tensor

    def sampled_scales(self) -> tuple[Tensor | None, Tensor | None]:
        """scale_a and scale_b of the sample, on the CPU. Scales of blocks get one for each row."""
        (m, k), n = self.a.shape, self.b.shape[1]
        return (
            _sampled(self.scale_a, 0, self.row, (m, k)),
            _sampled(self.scale_b, 1, self.column, (k, n)),
        )

    def pick(self, result: Tensor) -> Tensor:
        """The sample's elements of a result, on the CPU."""
        row, column = self.row.to(result.device), self.column.to(result.device)
        return result[row][:, column].cpu()


def _evenly(size: int) -> Tensor:
    return (
        torch.linspace(0, size - 1, min(size, SAMPLE), dtype=torch.float64, device="cpu")
        .round()
        .long()
    )


def _sampled(
    scale: Tensor | None, dim: int, index: Tensor, shape: tuple[int, int]
) -> Tensor | None:
    if scale is None:
        return None
    scale = scale.detach().cpu()
    if scale.dim() < 2 or scale.shape[dim] == 1:
        return scale
    if scale.shape[dim] != shape[dim]:  # of blocks of 128
        index = index // 128
    return scale.index_select(dim, index)


def of_tensors(a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None) -> Problem:
    """The problem of two matrices."""
    for name, x in (("a", a), ("b", b)):
        if type(x) is not torch.Tensor and not isinstance(x, torch.nn.Parameter):
            raise TypeError(
                f"{name} is a {type(x).__name__}, but error_report takes dense matrices, or (M, N, "
                "K) in the place of a."
            )
        if x.dim() != 2 or x.device.type == "meta":
            raise ValueError(
                f"{name} has the shape {tuple(x.shape)} on {x.device}, but error_report needs a "
                "matrix with numbers: (M, K) for a, (K, N) for b."
            )
    row, column = _evenly(a.shape[0]), _evenly(b.shape[1])
    rows, columns = _selected(a, 0, row), _selected(b, 1, column)
    for name, x in (("a", rows), ("b", columns)):
        if not x.double().isfinite().all():
            raise ValueError(
                f"{name} holds Inf or NaN, but error_report compares finite sums; pass "
                f"{name}.nan_to_num()."
            )
    rows, columns = in_layout(_layout(a, b), rows, columns)
    return Problem(a, b, scale_a, scale_b, row, column, rows, columns)


def _selected(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Some rows or columns on the CPU; of bytes, because torch selects no float8 on a GPU."""
    is_byte = x.element_size() == 1
    words = x.detach().view(torch.uint8) if is_byte else x.detach()
    return words.index_select(dim, index.to(x.device)).cpu().view(x.dtype)


def _layout(a: Tensor, b: Tensor) -> Layout:
    """The layout of two matrices: K-major where a stride of 1 allows it."""
    letters = ("T" if b.stride(1) != 1 else "N") + ("T" if a.stride(1) != 1 else "N")
    return next(layout for layout in words(Layout) if layout == letters)


def of_shape(
    shape: tuple[int, int, int], dtype: torch.dtype, data: str, layout: Layout, seed: int
) -> Problem:
    """A problem whose operands have a distribution. Only the sample is drawn."""
    if len(shape) != 3 or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"a is {shape!r}; expected a matrix, or three sizes (M, N, K).")
    check_distribution(data)
    m, n, k = shape
    a = torch.empty(m, k, dtype=dtype, device="meta")
    b = torch.empty(k, n, dtype=dtype, device="meta")
    a, b = in_layout(layout, a, b)
    row, column = _evenly(m), _evenly(n)
    generator = torch.Generator().manual_seed(seed)
    rows = draw((len(row), k), data, dtype, generator)
    columns = draw((len(column), k), data, dtype, generator).t()
    rows, columns = in_layout(layout, rows, columns)
    return Problem(a, b, None, None, row, column, rows, columns)
