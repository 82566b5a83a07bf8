"""torch's operators for a SparseTensor24: copies, moves, views, arithmetic with a new result.

Each function implements the operators above it, with their arguments. matmul.py has the products,
and in_place.py has the operators that change a tensor.
Views share the tensors inside. New tensors have their own metadata, because copy_ writes into them.
Only gradients share the metadata of their tensor.
"""

from __future__ import annotations

from typing import Any

import torch

from tcgemm.sparse.positions import decompress, gather_values
from tcgemm.sparse.prune import compress24
from tcgemm.sparse.tensor import SparseTensor24, implements

_aten = torch.ops.aten


# Views and copies.


def _view(w, **changes):
    """A view of w. As in torch, it is an inference tensor only if w is one."""
    if torch.is_inference_mode_enabled() and not w.is_inference():
        with torch.inference_mode(False):
            return w.like(w.tensors(), **changes)
    return w.like(w.tensors(), **changes)


@implements(_aten.detach.default, _aten.alias.default)
def _alias(w):
    return _view(w)


@implements(_aten.t.default)
def _t(w):
    return _view(w, shape=tuple(reversed(w.shape)), transposed=not w.transposed)


def _dim(dim):
    if not -2 <= dim <= 1:
        raise IndexError(
            f"tcgemm.SparseTensor24: dimension {dim} is out of range, because the tensor is a "
            "matrix; pass one from -2 to 1."
        )
    return dim % 2


@implements(_aten.transpose.int)
def _transpose(w, first, second):
    return _alias(w) if _dim(first) == _dim(second) else _t(w)


@implements(_aten.permute.default)
def _permute(w, dims):
    if sorted(_dim(dim) for dim in dims) != [0, 1]:
        raise RuntimeError(
            f"tcgemm.SparseTensor24: permute got the dimensions {tuple(dims)}, but the tensor is a "
            "matrix; pass (0, 1) or (1, 0)."
        )
    return _transpose(w, 0, dims[0])


@implements(_aten.view.default, _aten._unsafe_view.default)
def _view_as(w, size):
    """Compiled graphs call view with the tensor's own shape. No other shape is possible."""
    unknown = [extent for extent in size if extent == -1]
    return _expand(w, size) if len(unknown) < 2 else _no_view(w, size)


@implements(_aten.expand.default)
def _expand(w, size, *, implicit=False):
    if len(size) != 2:
        return _no_view(w, size)
    sizes = tuple(of if to == -1 else to for to, of in zip(size, w.shape, strict=True))
    return _view(w) if sizes == tuple(w.shape) else _no_view(w, size)


def _no_view(w, size):
    raise NotImplementedError(
        f"tcgemm.SparseTensor24: a tensor of shape {tuple(w.shape)} has no view of shape "
        f"{tuple(size)}, because its groups lie along rows; call it with to_dense() of the tensor."
    )


@implements(_aten.clone.default)
def _clone(w, *, memory_format=None):
    return w.like(w.tensors(torch.clone))


@implements(_aten._to_copy.default)
def _to_copy(w, *, dtype=None, device=None, non_blocking=False, **options):
    """Moves, then converts. The metadata are reordered on the new device."""
    moved = w
    if device is not None and torch.device(device) != w.device:
        how = {"device": device, "non_blocking": non_blocking, "copy": True}
        parts = [tensor.to(**how) for tensor in w.stored()[:2]]
        transpose = [tensor.to(**how) for tensor in w.stored(True)[:2]] if w.transposable else None
        moved = _assembled(w, parts, transpose, w.pattern)
    if dtype not in (None, w.dtype):
        return converted(moved, dtype)
    return moved if moved is not w else _clone(w)


def _assembled(w, parts, transpose, pattern):
    values, metadata = parts
    options = {"transpose": transpose, "dense_gradient": w.dense_gradient, "trusted": True}
    result = SparseTensor24.from_parts(values, metadata, w.stored_shape[1], pattern, **options)
    return _t(result) if w.transposed else result


def converted(w: SparseTensor24, dtype: torch.dtype) -> SparseTensor24:
    """The tensor with values of this dtype. "1:2" becomes "2:4" in other dtypes than float32,
    because two groups of two are a group of four."""
    paired = w.pattern == "1:2" and dtype is not torch.float32

    def convert(values, metadata, _tiles):
        values, metadata = _two_of_four(values, metadata) if paired else (values, metadata.clone())
        return values.to(dtype), metadata

    transpose = convert(*w.stored(True)) if w.transposable else None
    return _assembled(w, convert(*w.stored()), transpose, "2:4" if paired else w.pattern)


def _two_of_four(values, metadata):
    """Makes groups of four from pairs of groups of two. Positions count from the start of a group,
    so those in the second group of a pair grow by two."""
    metadata = metadata | 0x88
    columns = values.shape[1] + values.shape[1] % 2
    if columns % 4 == 2 and metadata.shape[1] > 0:
        metadata[:, -1] &= 0x0F
    return torch.nn.functional.pad(values, (0, columns - values.shape[1])), metadata


def _same_positions(first, second):
    if first.transposed is not second.transposed or first.pattern != second.pattern:
        return False
    if (
        first.metadata is second.metadata
        and first.transposed_metadata is second.transposed_metadata
    ):
        return True
    # Metadata of another type have no values, because the call is traced.
    plain = type(first.metadata) is type(second.metadata) is torch.Tensor
    return plain and first.shape == second.shape and torch.equal(first.metadata, second.metadata)


@implements(_aten.copy_.default)
def _copy(w, source, non_blocking=False):
    """Copies a SparseTensor24, or a dense tensor that has the pattern of w."""
    if not isinstance(w, SparseTensor24):
        return w.copy_(decompress(source), non_blocking)
    if source.shape != w.shape:
        raise RuntimeError(
            f"tcgemm.SparseTensor24: a tensor of shape {tuple(source.shape)} cannot be copied into "
            f"one of shape {tuple(w.shape)}; pass a tensor of that shape."
        )
    same = isinstance(source, SparseTensor24) and source.transposed is w.transposed
    if same and source.transposable >= w.transposable:
        source = source.to(w.device, w.dtype)
    if not same or source.pattern != w.pattern or source.transposable < w.transposable:
        source = _recompressed(source.to(w.device, w.dtype), w)
    for name, tensor in w.tensors().items():
        tensor.copy_(getattr(source, name), non_blocking)
    w.count_change()
    return w


def _recompressed(source, w):
    if isinstance(source, SparseTensor24):
        source = decompress(source)
    source = source.t() if w.transposed else source
    result = compress24(source, pattern=w.pattern, transposable=w.transposable)
    return _t(result) if w.transposed else result


# Arithmetic.


def _values(w, function):
    """Applies the function to the values, and copies the positions."""
    inner = w.tensors()
    for name, tensor in inner.items():
        inner[name] = function(tensor) if name.endswith("values") else tensor.clone()
    return w.like(inner)


def _of_values(operator):
    def elementwise(w, *numbers, **options):
        return _values(w, lambda values: operator(values, *numbers, **options))

    return elementwise


for _operator in (
    *(_aten.neg.default, _aten.abs.default, _aten.sqrt.default),
    *(_aten.mul.Scalar, _aten.div.Scalar),
):
    implements(_operator)(_of_values(_operator))


def _like(operator):
    """A new tensor with the positions of w. full_like fills only the kept elements."""

    def new(w, *number, dtype=None, device=None, **options):
        if w.is_meta and device is not None and torch.device(device).type != "meta":
            zeros = torch.zeros(w.shape, dtype=dtype or w.dtype, device=device)
            w = _recompressed(zeros, w)  # tensor cores need valid metadata
            return _values(w, lambda values: operator(values, *number))
        if dtype is not None or device is not None:
            w = _to_copy(w, dtype=dtype, device=device)
        return _values(w, lambda values: operator(values, *number))

    return new


for _operator in (_aten.zeros_like.default, _aten.empty_like.default, _aten.full_like.default):
    implements(_operator)(_like(_operator))


@implements(_aten.linalg_vector_norm.default)
def _norm(w, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The norm of the whole matrix, as clip_grad_norm_ needs it."""
    if dim is not None or keepdim or ord <= 0:
        w = decompress(w)
        return _aten.linalg_vector_norm.default(w, ord, dim, keepdim, dtype=dtype)
    return _aten.linalg_vector_norm.default(w.values, ord, dtype=dtype)


@implements(_aten.new_empty_strided.default)
def _new_empty_strided(w, size, stride, **options):
    if tuple(size) == tuple(w.shape) and tuple(stride) == w.stride() and not any(options.values()):
        return _values(w, torch.empty_like)
    options = {"dtype": w.dtype, "device": w.device} | {
        name: value for name, value in options.items() if value is not None
    }
    return torch.empty_strided(size, stride, **options)


def operand_at(w: SparseTensor24, other: Any, transpose: bool) -> Any:
    """The elements of `other` at w's positions; numbers and single elements stay as they are."""
    if not isinstance(other, torch.Tensor) or other.dim() == 0:
        return other
    if isinstance(other, SparseTensor24):
        if _same_positions(w, other) and w.transposable is other.transposable:
            return other.transposed_values if transpose else other.values
        other = decompress(other)
    return gather_values(other.expand(w.shape), w, transpose)


def _scaled(operator, commutes):
    def product(first, second, **options):
        if not isinstance(first, SparseTensor24):
            if not commutes:
                return operator(first, decompress(second), **options)
            first, second = second, first
        inner = first.tensors(torch.clone)
        inner["values"] = operator(first.values, operand_at(first, second, False), **options)
        if first.transposable:
            transpose = operand_at(first, second, True)
            inner["transposed_values"] = operator(first.transposed_values, transpose, **options)
        return first.like(inner)

    return product


implements(_aten.mul.Tensor)(_scaled(_aten.mul.Tensor, True))
implements(_aten.div.Tensor)(_scaled(_aten.div.Tensor, False))


def _sum(operator):
    def total(first, second, **options):
        both = isinstance(first, SparseTensor24) and isinstance(second, SparseTensor24)
        if both and _same_positions(first, second):
            transposable = first.transposable and second.transposable
            inner = first.tensors(transpose=transposable)
            inner["values"] = operator(first.values, second.values, **options)
            if transposable:
                values = first.transposed_values, second.transposed_values
                inner["transposed_values"] = operator(*values, **options)
            return first.like(inner)
        dense = [
            decompress(operand) if isinstance(operand, SparseTensor24) else operand
            for operand in (first, second)
        ]
        return operator(*dense, **options)

    return total


for _operator in (_aten.add.Tensor, _aten.sub.Tensor, _aten.maximum.default):
    implements(_operator)(_sum(_operator))
