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

import torch

from tcgemm.ops import functional
from tcgemm.ops._torch_private import no_torch_function
from tcgemm.ops.epilogue import ADDENDS, DESCRIBED, Scales, epilogue_of
from tcgemm.ops.operands import register_products
from tcgemm.ops.operators import ADDMM, LINEAR, MATMUL, MM, PLAIN, Scaled
from tcgemm.sparse.check import check_dense, check_float32, check_no_dtensor, check_operands
from tcgemm.sparse.fast_path import metadata_argument
from tcgemm.sparse.positions import decompress
from tcgemm.sparse.tensor import SparseTensor24, implements, replaces

_aten = torch.ops.aten
_f32 = torch.float32
_DENSE = (*ADDENDS, *Scales._fields, "out")  # no SparseTensor24 can be one of these


def _is_sparse(tensor):
    return isinstance(tensor, SparseTensor24)


def _precise(name, a, b, epilogue):
    """The operands and the epilogue of a float32 product, by its precision."""
    w = a if _is_sparse(a) else b
    if w.dtype is not _f32:
        return a, b, epilogue
    check_float32(name, w, epilogue.precision)
    if epilogue.precision == "medium":
        a, b = a.to(torch.bfloat16), b.to(torch.bfloat16)
        out_dtype = epilogue.out_dtype or _f32
        return a, b, epilogue._replace(out_dtype=out_dtype, precision=None)
    return a, b, epilogue.with_precision("high")


def _compressed(w, along_rows):
    """The stored tensors whose groups lie along the rows of w, or along its columns; None if they
    are not stored."""
    if w.transposed is not along_rows:
        return w.stored()
    return w.stored(True) if w.transposable else None


def _one_sparse(a, b):
    return (decompress(a) if _is_sparse(a) and _is_sparse(b) else a), b


def _as_stored(a, b):
    """(a, b, sparse_a, sparse_b) as the operators take them; one of a and b is a SparseTensor24."""
    sparse_a = sparse_b = None
    if _is_sparse(a):
        stored = _compressed(a, True)
        if stored is None:
            a = decompress(a)
        else:
            a, sparse_a = stored[0], metadata_argument(*stored[1:])
    else:
        stored = _compressed(b, False)
        if stored is None:
            b = decompress(b)
        else:
            b, sparse_b = stored[0].t(), metadata_argument(*stored[1:])
    return a, b, sparse_a, sparse_b


def _multiply(op, call, out, a, b, c, bias, residual, epilogue):
    """scaled_mm of matrices, one of which is a SparseTensor24."""
    a, b, epilogue = _precise(op.name, *_one_sparse(a, b), epilogue)
    a, b, sparse_a, sparse_b = _as_stored(a, b)
    forms = {"sparse_a": sparse_a, "sparse_b": sparse_b, "kernel_name": call.kernel_name}
    call = Scaled(call.constants, amax=call.amax, **forms)
    try:
        if out is not None:
            return call.call(call.out, a, b, c, bias, residual, epilogue, out=out)
        return call.run(a, b, c, bias, residual, epilogue)
    except RuntimeError as error:
        if str(error).startswith("tcgemm: "):  # scaled_mm does not know the called function
            raise RuntimeError(f"tcgemm.{op.name}{str(error).removeprefix('tcgemm')}") from None
        raise


def _describe(name, a, b, *others, out_dtype=None, precision=None, **options):
    """explain or check_layout for the product that runs: float32 as tf32 except with "medium"."""
    check_dense(name, dict(zip(DESCRIBED, others, strict=False)) | options)
    precision = "high" if precision == "highest" else precision
    epilogue = epilogue_of(out_dtype=out_dtype, precision=precision)
    a, b, epilogue = _precise(name, *_one_sparse(a, b), epilogue)
    a, b, sparse_a, sparse_b = _as_stored(a, b)
    options |= {"out_dtype": epilogue.out_dtype, "precision": epilogue.precision}
    op = getattr(torch.ops.tcgemm, name).default
    return op(a, b, *others, sparse_a=sparse_a, sparse_b=sparse_b, **options)


register_products(SparseTensor24, check_operands, _multiply, _describe)


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
            check_dense(function.__name__, {name: kwargs.get(name) for name in _DENSE})
        check_no_dtensor(function.__name__, (*args, *kwargs.values()))
        operands = [argument for argument in args if _is_sparse(argument)]
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
