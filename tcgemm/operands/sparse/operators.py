"""torch's operators for a SparseTensor24: copies, moves, views, arithmetic, uses of its memory.

Each function implements the operators above it, with their arguments. matmul.py has the products.
Views share the tensors inside. New tensors have their own metadata, because copy_ writes into them.
Only gradients share the metadata of their tensor.

An operator that changes a tensor uses the elements of its operands at the kept positions. All other
elements stay zero, also if a number is added. So an optimizer does the same as with a dense weight
whose gradient is masked. The states of Adam, AdamW and others are SparseTensor24 of the same
positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor

from tcgemm.operands.sparse.parts import DTYPES
from tcgemm.operands.sparse.positions import (
    decompress,
    gather,
    gather_values,
    stored_elements,
)
from tcgemm.operands.sparse.prune import compress24
from tcgemm.operands.sparse.tensor import SparseTensor24, implements, replaces
from tcgemm.ops._torch_private import no_torch_function
from tcgemm.ops.kept import capturing

_aten = torch.ops.aten
_Tensor = torch.Tensor


def is_sparse(tensor: object) -> TypeGuard[SparseTensor24]:
    """Is this a SparseTensor24?"""
    return isinstance(tensor, SparseTensor24)


def dense(value: Any) -> Any:
    """The dense matrix of a SparseTensor24; other values as they are."""
    return decompress(value) if isinstance(value, SparseTensor24) else value


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
    if dtype not in DTYPES:
        raise RuntimeError(
            f"tcgemm.SparseTensor24: it is converted to {dtype}, but its values can be "
            f"{', '.join(map(str, DTYPES))}; convert its to_dense(), or make the layer dense with "
            "tcgemm.swap_linear(model, to=torch.nn.Linear) before."
        )
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
    if not is_sparse(w):
        return w.copy_(decompress(source), non_blocking)
    if source.shape != w.shape:
        raise RuntimeError(
            f"tcgemm.SparseTensor24: a tensor of shape {tuple(source.shape)} cannot be copied into "
            f"one of shape {tuple(w.shape)}; pass a tensor of that shape."
        )
    same = is_sparse(source) and source.transposed is w.transposed
    if same and source.transposable >= w.transposable:
        source = source.to(w.device, w.dtype)
    if not same or source.pattern != w.pattern or source.transposable < w.transposable:
        source = _recompressed(source.to(w.device, w.dtype), w)
    for name, tensor in w.tensors().items():
        tensor.copy_(getattr(source, name), non_blocking)
    w.count_change()
    return w


def _recompressed(source, w):
    source = dense(source).t() if w.transposed else dense(source)
    result = compress24(source, pattern=w.pattern, transposable=w.transposable)
    return _t(result) if w.transposed else result


def refresh_forms(w: SparseTensor24, *, has_values: bool = True) -> None:
    """Computes the tiles and the compressed transpose again, at their addresses, from the values
    and the metadata.

    Other positions in the transpose are chosen only if it has none for an element. The capture of a
    CUDA graph checks nothing, since that waits. has_values=False: the caller writes the values of
    both afterwards.

    Raises RuntimeError if the positions are not valid, or not those of a transposable matrix.
    """
    recorded = capturing(w.values)
    again = SparseTensor24.from_parts(w.values, w.metadata, w.k, w.pattern, trusted=recorded)
    parts = {"tiles": again.tiles}
    if w.transposable:
        dense = decompress(again)
        values, metadata, _tiles = w.stored(True)
        has_position = stored_elements(values, metadata, len(dense), w.pattern).t()
        if recorded or not ((dense != 0) & ~has_position).any():
            if has_values:
                parts["transposed_values"] = gather(dense.t(), metadata, w.pattern)
        else:
            both = compress24(dense, pattern=w.pattern, transposable=True).tensors()
            parts |= {name: part for name, part in both.items() if name.startswith("transposed")}
    parts = {name: tensor for name, tensor in parts.items() if getattr(w, name) is not None}
    for name, tensor in parts.items():
        getattr(w, name).copy_(tensor)
    if parts:
        w.version_lead = w._lead()
        w.count_change()


# Arithmetic.


def with_values(w: SparseTensor24, function: Callable[[Tensor, bool], Tensor]) -> SparseTensor24:
    """A new tensor with the positions of w, copied, and the values function(values, transpose):
    those of the stored matrix, and of its compressed transpose if there is one."""
    inner = w.tensors()
    for name, tensor in inner.items():
        is_values, transpose = name.endswith("values"), name.startswith("transposed")
        inner[name] = function(tensor, transpose) if is_values else tensor.clone()
    return w.like(inner)


def _at_positions(w: SparseTensor24, other: Any, transpose: bool) -> Any:
    """The elements of `other` at w's positions; numbers and single elements stay as they are."""
    if not isinstance(other, torch.Tensor) or other.dim() == 0:
        return other
    if isinstance(other, SparseTensor24):
        if _same_positions(w, other) and w.transposable is other.transposable:
            return other.transposed_values if transpose else other.values
        other = decompress(other)
    return gather_values(other.expand(w.shape), w, transpose)


def _elementwise(operator):
    """A new tensor; the operator keeps zeros, whatever its other operands are."""

    def result(w, *others, **options):
        if operator is _aten.mul.Tensor and not is_sparse(w):
            w, others = others[0], (w,)
        if not is_sparse(w):
            return operator(w, *map(dense, others), **options)

        def values_of(values, transpose):
            at_positions = (_at_positions(w, other, transpose) for other in others)
            return operator(values, *at_positions, **options)

        return with_values(w, values_of)

    return result


for _operator in (
    *(_aten.neg.default, _aten.abs.default, _aten.sqrt.default),
    *(_aten.mul.Scalar, _aten.mul.Tensor, _aten.div.Scalar, _aten.div.Tensor),
):
    implements(_operator)(_elementwise(_operator))


def _like(operator):
    """A new tensor with the positions of w. full_like fills only the kept elements."""

    def new(w, *number, dtype=None, device=None, **options):
        if w.is_meta and device is not None and torch.device(device).type != "meta":
            zeros = torch.zeros(w.shape, dtype=dtype or w.dtype, device=device)
            w = _recompressed(zeros, w)  # tensor cores need valid metadata
            return with_values(w, lambda values, _: operator(values, *number))
        if dtype is not None or device is not None:
            w = _to_copy(w, dtype=dtype, device=device)
        return with_values(w, lambda values, _: operator(values, *number))

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
        return with_values(w, lambda values, _: torch.empty_like(values))
    options = {name: value for name, value in options.items() if value is not None}
    dtype, device = options.pop("dtype", w.dtype), options.pop("device", w.device)
    return torch.empty_strided(size, stride, dtype=dtype, device=device, **options)


def _sum(operator):
    def total(first, second, **options):
        if is_sparse(first) and is_sparse(second) and _same_positions(first, second):
            inner = first.tensors(transpose=second.transposable)
            for name in filter(inner.__contains__, ("values", "transposed_values")):
                inner[name] = operator(inner[name], getattr(second, name), **options)
            return first.like(inner)
        return operator(dense(first), dense(second), **options)

    return total


for _operator in (_aten.add.Tensor, _aten.sub.Tensor, _aten.maximum.default):
    implements(_operator)(_sum(_operator))


# Changes in place.


def _in_place(operator):
    def change(w, *operands, **options):
        if not is_sparse(w):
            return operator(w, *map(dense, operands), **options)
        operator(w.values, *(_at_positions(w, item, False) for item in operands), **options)
        w.values_changed()
        return w

    return change


for _operator in (
    *(_aten.add_.Tensor, _aten.sub_.Tensor, _aten.mul_.Tensor, _aten.div_.Tensor),
    *(_aten.lerp_.Scalar, _aten.lerp_.Tensor, _aten.addcmul_.default, _aten.addcdiv_.default),
    *(_aten.neg_.default, _aten.abs_.default, _aten.sqrt_.default, _aten.zero_.default),
):
    implements(_operator)(_in_place(_operator))


@implements(_aten.addcmul.default)
def _addcmul(w, first, second, *, value=1):
    if not is_sparse(w):
        return _aten.addcmul.default(w, dense(first), dense(second), value=value)
    return w.clone().addcmul_(first, second, value=value)


@implements(_aten.maximum.out)
def _maximum_out(first, second, *, out):
    if not is_sparse(out):
        return out.copy_(torch.maximum(first, second))
    _aten.maximum.out(
        *(_at_positions(out, item, False) for item in (first, second)), out=out.values
    )
    out.values_changed()
    return out


@implements(_aten._amp_foreach_non_finite_check_and_unscale_.default)
def _rescale(tensors, found_inf, inverse_scale):
    """torch.amp.GradScaler calls this operator with all gradients."""
    inside = [tensor.values if is_sparse(tensor) else tensor for tensor in tensors]
    _aten._amp_foreach_non_finite_check_and_unscale_.default(inside, found_inf, inverse_scale)
    for tensor in filter(is_sparse, tensors):
        tensor.values_changed()


# Uses of the memory. A SparseTensor24 has none of its own, and torch would read from address 0.


@replaces(_Tensor.share_memory_)
def _share_memory(w):
    for tensor in w.tensors().values():
        tensor.share_memory_()
    return w


@replaces(_Tensor.is_shared)
def _is_shared(w):
    return all(tensor.is_shared() for tensor in w.tensors().values())


@replaces(_Tensor.data_ptr)
def _data_ptr(w):
    """The address of the values, by which libraries find tensors that share memory."""
    return w.values.data_ptr()


@replaces(_Tensor.data.__set__)  # pyright: ignore[reportAttributeAccessIssue]
def _set_data(w, other):
    """`w.data = other` also takes the tensors inside of `other`."""
    if not is_sparse(other):
        raise RuntimeError(
            "tcgemm.SparseTensor24: data must be a SparseTensor24, but is a "
            f"{type(other).__name__}; pass tcgemm.compress24 of it, or call copy_()."
        )
    with no_torch_function():
        w.data = other
    vars(w).update(vars(other.detach()), fast_operands=None)


def _refused(name, mend):
    def refuse(*args, **kwargs):
        raise RuntimeError(
            f"tcgemm.SparseTensor24: {name} needs a dense tensor's memory, which a SparseTensor24 "
            f"does not have; {mend}."
        )

    return refuse


for _function in (_Tensor.__dlpack__, _Tensor.__dlpack_device__):
    _mend = "pass the tensor's to_dense(), or its values and metadata"
    replaces(_function)(_refused(_function.__name__, _mend))
for _function in (_Tensor.apply_, _Tensor.map_, _Tensor.map2_):
    replaces(_function)(_refused(_function.__name__, "call it with the tensor's values"))
