"""Operators that change a SparseTensor24 in place: arithmetic at the kept positions.

An operator uses the elements of its operands at the kept positions. All other elements stay zero,
also if a number is added. So an optimizer does the same as with a dense weight whose gradient is
masked. The states of Adam, AdamW and others are SparseTensor24 of the same positions.
"""

import torch

from tcgemm.sparse.arithmetic import operand_at
from tcgemm.sparse.positions import decompress
from tcgemm.sparse.tensor import SparseTensor24, implements

_aten = torch.ops.aten


def _in_place(operator):
    def change(w, *operands, **options):
        if not isinstance(w, SparseTensor24):
            dense = [decompress(item) if _is_sparse(item) else item for item in operands]
            return operator(w, *dense, **options)
        tensors = [operand_at(w, item, False) for item in operands]
        operator(w.values, *tensors, **options)
        w.update_transpose()
        w.count_change()
        return w

    return change


def _is_sparse(tensor):
    return isinstance(tensor, SparseTensor24)


for _operator in (
    *(_aten.add_.Tensor, _aten.sub_.Tensor, _aten.mul_.Tensor, _aten.div_.Tensor),
    *(_aten.lerp_.Scalar, _aten.lerp_.Tensor, _aten.addcmul_.default, _aten.addcdiv_.default),
    *(_aten.neg_.default, _aten.abs_.default, _aten.sqrt_.default, _aten.zero_.default),
):
    implements(_operator)(_in_place(_operator))


@implements(_aten.addcmul.default)
def _addcmul(w, first, second, *, value=1):
    if not _is_sparse(w):
        first, second = (decompress(item) if _is_sparse(item) else item for item in (first, second))
        return _aten.addcmul.default(w, first, second, value=value)
    return w.clone().addcmul_(first, second, value=value)


@implements(_aten.maximum.out)
def _maximum_out(first, second, *, out):
    if not _is_sparse(out):
        return out.copy_(torch.maximum(first, second))
    _aten.maximum.out(*(operand_at(out, item, False) for item in (first, second)), out=out.values)
    out.update_transpose()
    out.count_change()
    return out


@implements(_aten._amp_foreach_non_finite_check_and_unscale_.default)
def _rescale(tensors, found_inf, inverse_scale):
    """torch.amp.GradScaler calls this operator with all gradients."""
    inside = [tensor.values if _is_sparse(tensor) else tensor for tensor in tensors]
    _aten._amp_foreach_non_finite_check_and_unscale_.default(inside, found_inf, inverse_scale)
    for tensor in filter(_is_sparse, tensors):
        tensor.update_transpose()
        tensor.count_change()
