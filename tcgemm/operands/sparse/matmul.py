"""Products with a SparseTensor24.

    torch's functions, @ --> tcgemm's --> autograd.Gemm --> an operator --> __torch_dispatch__

    operand of the product       its groups lie along                computed by
    w.t() on the right           the summed dimension                scaled_mm(sparse_b=)
    w on the left                the summed dimension                scaled_mm(sparse_a=)
    w on the right, w.t() left   the other one; w is transposable    the same, with the transpose
                                 the other one                       to_dense(), dense scaled_mm

So all options of the products work (bias, activation, scales, out, gradients of any order). For
autograd a SparseTensor24 is an operand like others, except that it masks its gradient. The gradient
of the other operand multiplies the transpose: that is the third case if the tensor is transposable,
else the last one.

float32 is multiplied as tf32 ("high") where the pattern is 1:2, and converted to bf16 by "medium".
"""

from typing import Any

import torch

from tcgemm.operands.sparse.check import check_float32, check_no_dtensor, check_operands
from tcgemm.operands.sparse.fast_path import metadata_argument
from tcgemm.operands.sparse.operators import is_sparse
from tcgemm.operands.sparse.positions import decompress
from tcgemm.operands.sparse.tensor import SparseTensor24, implements, replaces
from tcgemm.ops import functional
from tcgemm.ops._torch_private import no_torch_function
from tcgemm.ops.epilogue import ADDENDS, Scales
from tcgemm.ops.operands import refuse_others, register_products
from tcgemm.ops.operators import ADDMM, LINEAR, MATMUL, MM, PLAIN

_aten = torch.ops.aten
_f32 = torch.float32
_DENSE = (*ADDENDS, *Scales._fields, "out")  # no SparseTensor24 can be one of these


def _stored(name, _names, a, b, epilogue):
    """(a, b, sparse_a and sparse_b, epilogue) as the operators take them; one of a and b is a
    SparseTensor24."""
    if is_sparse(a) and is_sparse(b):
        a = decompress(a)
    a, b, epilogue = _precise(name, a, b, epilogue)
    left = is_sparse(a)
    w = a if left else b
    stored: Any = w.stored(w.transposed is left)  # the tensors whose groups lie along k
    if stored[0] is None:
        return (decompress(a), b, {}, epilogue) if left else (a, decompress(b), {}, epilogue)
    values, sparse = stored[0], metadata_argument(*stored[1:])
    if left:
        return values, b, {"sparse_a": sparse}, epilogue
    return a, values.t(), {"sparse_b": sparse}, epilogue


def _precise(name, a, b, epilogue):
    """The operands and the epilogue of a float32 product, by its precision."""
    w = a if is_sparse(a) else b
    if w.dtype is not _f32:
        return a, b, epilogue
    precision = epilogue.precision
    if precision == "highest" and name in ("explain", "check_layout"):
        precision = "high"  # they describe the product that runs
    check_float32(name, w, precision)
    if precision == "medium":
        a, b = a.to(torch.bfloat16), b.to(torch.bfloat16)
        out_dtype = epilogue.out_dtype or _f32
        return a, b, epilogue._replace(out_dtype=out_dtype, precision=None)
    return a, b, epilogue.with_precision("high")


register_products(SparseTensor24, check_operands, _stored)


# torch's operators are called here by code without __torch_function__, and in inference mode.


for _aten_op, _op in ((_aten.mm, MM), (_aten.matmul, MATMUL), (_aten.linear, LINEAR)):
    implements(_aten_op.default)(SparseTensor24.TABLE[_op.default])


@implements(_aten.addmm.default)
def _aten_addmm(c, a, b, *, beta=1, alpha=1):
    return SparseTensor24.TABLE[ADDMM.default](c, a, b, alpha=float(alpha), beta=float(beta))


# Functions of tcgemm.


def _ours(function):
    """Registers a function of tcgemm, in which precision=None means "high" for float32."""

    def product(*args, precision=None, **kwargs):
        if SparseTensor24 in map(type, kwargs.values()):
            tensors = {name: kwargs.get(name) for name in _DENSE}
            refuse_others(SparseTensor24, function.__name__, tensors)
        check_no_dtensor(function.__name__, (*args, *kwargs.values()))
        operands = [argument for argument in args if is_sparse(argument)]
        if operands and operands[0].dtype is _f32:
            w = operands[0]
            if precision == "highest" and not torch.is_autocast_enabled(w.device.type):
                check_float32(function.__name__, w, precision)
            precision = "high" if precision is None else precision
        with no_torch_function():
            return function(*args, precision=precision, **kwargs)

    return replaces(function)(product)


for _op in PLAIN:
    _ours(getattr(functional, _op.name))
