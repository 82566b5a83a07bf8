"""The elements of dense matrices at the kept positions of a SparseTensor24, without autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tcgemm.operands.sparse.parts import DTYPES, GROUPS, default_pattern, value_columns
from tcgemm.ops.memory import eager

if TYPE_CHECKING:
    from torch import Tensor

    from tcgemm.operands.sparse.tensor import SparseTensor24

_decompress24 = eager(torch.ops.tcgemm.decompress24.default)
_gather24 = eager(torch.ops.tcgemm.gather24.default)


def decompress(w: SparseTensor24) -> Tensor:
    """The dense matrix."""
    values, metadata, _tiles = w.stored()
    dense = _decompress24(values, metadata, w.stored_shape[1], w.pattern)
    return dense.t() if w.transposed else dense


def _bits(tensor: Tensor) -> Tensor:
    """8-bit types as integers, because torch has few operators of float8."""
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def keep(mask: Tensor, dense: Tensor) -> Tensor:
    """The dense tensor where the mask is true. All other elements become zero, NaN as well."""
    bits = _bits(dense)
    masked = torch.where(mask, bits, bits.new_zeros(()))
    return masked if bits is dense else masked.view(dense.dtype)  # view(dtype) has no gradient


def unpack_positions(metadata: Tensor, columns: int) -> Tensor:
    """The positions in their groups of the `columns` values of each row, (..., columns)."""
    codes = torch.stack([(metadata >> shift) & 3 for shift in (0, 2, 4, 6)], -1)
    return codes.flatten(-2)[..., :columns]


def pack_positions(positions: Tensor) -> Tensor:
    """The metadata of uint8 positions (..., columns); zero bits fill the last byte."""
    filled = torch.nn.functional.pad(positions, (0, -positions.shape[-1] % 4))
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=positions.device)
    return (filled.unflatten(-1, (-1, 4)) << shifts).sum(-1).to(torch.uint8)


def gather(dense: Tensor, metadata: Tensor, pattern: str) -> Tensor:
    """The elements of a dense matrix at the positions in the metadata."""
    if dense.dtype in DTYPES and pattern in ("2:4", default_pattern(dense.dtype)):
        return _gather24(dense, metadata, pattern)
    # The operator has no kernel for this dtype, which arithmetic may use.
    group = GROUPS[pattern]
    k = dense.shape[1]
    columns = value_columns(k, pattern)
    first = torch.arange(columns, device=dense.device) // (group // 2) * group
    index = unpack_positions(metadata, columns) + first
    bits = torch.nn.functional.pad(_bits(dense), (0, -k % group))
    return bits.gather(1, index).view(dense.dtype)


def gather_values(dense: Tensor, w: SparseTensor24, transpose: bool) -> Tensor:
    """The values that a dense matrix of w's shape gives to w, or to its compressed transpose.

    In groups with few elements, w and its compressed transpose may store different zeros. These
    zeros stay zero, so that both store the same matrix.
    """
    dense = dense.t() if w.transposed is not transpose else dense
    other = w.stored(not transpose)[:2] if w.transposable else (None, None)
    return gather_common(dense, w.stored(transpose)[1], *other, w.pattern)


def gather_common(
    dense: Tensor,
    metadata: Tensor,
    other_values: Tensor | None,
    other_metadata: Tensor | None,
    pattern: str,
) -> Tensor:
    """The elements of a dense matrix at the positions in the metadata. Those that have no position
    in the compressed transpose, the other one, are zero."""
    if other_values is not None and other_metadata is not None:
        dense = keep(
            stored_elements(other_values, other_metadata, dense.shape[0], pattern).t(), dense
        )
    return gather(dense, metadata, pattern)


def stored_elements(values: Tensor, metadata: Tensor, k: int, pattern: str) -> Tensor:
    """The mask (N, k) of the elements that have a position in the metadata."""
    ones = torch.ones_like(values, dtype=torch.uint8 if pattern == "2:4" else torch.float32)
    return _decompress24(ones, metadata, k, pattern) != 0


def dense_masked(dense: Tensor, kept: SparseTensor24, gradient: str) -> Tensor:
    """The matrix with zeros beside the elements that `kept` has, by operators of plain tensors,
    which torch.func transforms. Its gradient is masked or straight_through."""
    ones, k = torch.ones_like(kept.values), dense.shape[1]
    stored = _decompress24(ones, kept.metadata, k, kept.pattern)
    passed = gradient == "straight_through"
    others = dense - dense.detach() if passed else torch.zeros_like(dense)
    return torch.where(stored != 0, dense, others)
