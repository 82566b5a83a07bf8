"""Dispatch: the steps between a public function and the operator.

    __torch_function__ -> types -> out= or autocast -> precision -> autograd.call -> the operator

`gemm` handles calls without scales and zero points with as little host time as possible.
`scaled_gemm` handles all others: it views the operands as matrices and calls scaled_mm. The
operators check shapes, dtypes and devices (csrc/ops/check); only types are checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.overrides import (
    handle_torch_function,
    has_torch_function,
    has_torch_function_variadic,
)

from tcgemm.ops import calls, invariance, precision
from tcgemm.ops._torch_private import any_autocast_enabled, in_dual_level, is_batched
from tcgemm.ops.arguments import check_amax, check_words, refusal, wrong_type
from tcgemm.ops.direct import DENSE
from tcgemm.ops.epilogue import DEFAULT, NO_SCALES, Epilogue, Scales
from tcgemm.ops.operands import Operand, products
from tcgemm.ops.operators import ADDS_C, LINEAR, Operator, Scaled

_CAST = (torch.float16, torch.bfloat16, torch.float32)  # the dtypes that torch's autocast casts
USUAL: set[type] = {*DENSE, type(None)}  # the classes of plain tensors, and of none
_f32 = torch.float32
_tensor = torch.Tensor
_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled


def gemm(
    function: Callable[..., Any],
    op: Operator,
    a: Any,
    b: Any,
    c: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    epilogue: Epilogue = DEFAULT,
    scales: Scales = NO_SCALES,
    amax: Any = False,
) -> Any:
    """Calls `op` with operands in the common form of operators.py. `function` is the public one."""
    if (
        type(a) not in DENSE
        or type(b) not in DENSE
        or has_torch_function_variadic(a, b, c, bias, residual, out)
        or (scales is not NO_SCALES and has_torch_function_variadic(*scales))
    ):
        for product in (products.get(type(b)), products.get(type(a)), _overridden):
            if product is not None:
                result = product(function, op, a, b, c, bias, residual, out, epilogue, scales, amax)
                if result is not NotImplemented:
                    return result
    if scales is not NO_SCALES or amax is not False:
        return scaled_gemm(op, a, b, c, bias, residual, out, epilogue, scales, amax)
    if not (
        isinstance(a, _tensor)
        and isinstance(b, _tensor)
        and (isinstance(c, _tensor) if op.adds_c else c is None or isinstance(c, _tensor))
        and (bias is None or isinstance(bias, _tensor))
        and (residual is None or isinstance(residual, _tensor))
        and (out is None or isinstance(out, _tensor))
    ):
        raise no_tensor(op.name, _named(op, a, b, c, bias, residual, out))
    try:
        if out is not None:
            return into(op, op, out, out, a, b, c, bias, residual, resolved(a, epilogue))
        traced = _compiling()
        if traced or any_autocast_enabled():
            a, b, c, bias, residual = autocast(a, b, c, bias, residual)
        if a.is_cuda and a.dtype is _f32:
            epilogue = resolved(a, epilogue)
        if traced:  # the Autograd kernel of the operator differentiates
            epilogue = invariance.kept(epilogue)
            check_words(op.name, epilogue)  # torch.compile would show the dispatcher's text
            return op.run(a, b, c, bias, residual, epilogue)
        return calls.call(op, a, b, c, bias, residual, epilogue)
    except RuntimeError as error:
        refused = clearer_error(op, error, _named(op, a, b, c, bias, residual, out), epilogue)
        if refused is None:
            raise
        raise refused from None


def scaled_gemm(
    op: Operator,
    a: Any,
    b: Any,
    c: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    out: torch.Tensor | None,
    epilogue: Epilogue,
    scales: Scales,
    amax: Any,
    terms: torch.Tensor | None = None,
) -> Any:
    """gemm with scales, zero points, amax as a second result, or terms of b."""
    if amax is not False:
        check_amax(op.name, amax)
    if not all_tensors(op, a, b, c, bias, residual, out, *scales):
        named = _named(op, a, b, c, bias, residual, out)
        raise no_tensor(op.name, named | scales._asdict())
    try:
        return _as_matrices(op, out, a, b, c, bias, residual, epilogue, scales, amax, terms)
    except RuntimeError as error:
        refused = clearer_error(op, error, _named(op, a, b, c, bias, residual, out), epilogue)
        if refused is None:
            raise
        raise refused from None


def _as_matrices(op, out, a, b, c, bias, residual, epilogue, scales, amax, terms):
    """Calls scaled_mm, whose operands are matrices or batches of matrices, in place of `op`."""
    if amax and out is not None:
        raise amax_with_out(op.name)
    traced = _compiling()
    if out is None and (traced or any_autocast_enabled()):
        a, b, c, bias, residual = autocast(a, b, c, bias, residual)
    epilogue = resolved(a, epilogue)
    if not op.takes(a, b, bias) or (op.weight and a.shape[-1] != b.shape[1]):
        op.run(a, b, c, bias, residual, epilogue)  # raises the error, except in a traced call
        raise RuntimeError(
            f"tcgemm.{op.name}: operands of shapes {tuple(a.shape)} and {tuple(b.shape)}, or the "
            "bias, do not have the dimensions that it takes."
        )

    dims = (a.dim(), b.dim())
    terms = fitting(terms, a, b, epilogue.precision)
    has_vector = 1 in dims
    if has_vector:
        scales = _lifted_scales(dims, scales)
        a = op.matrix_a(a, dims[0])
        if residual is not None and residual.dim() > 0:
            residual = op.lift(residual, *dims)
    if has_vector or op.weight:
        b = op.matrix_b(b, dims[1])
    call = Scaled(scales, amax=amax, terms_b=terms)
    if out is not None:
        return into(op, call, out, op.lift(out, *dims), a, b, c, bias, residual, epilogue)
    if traced:
        epilogue = invariance.kept(epilogue)
        check_words(op.name, epilogue)
        result = call.run(a, b, c, bias, residual, epilogue)
    else:
        result = calls.call_checked(call, a, b, c, bias, residual, epilogue)
    if not has_vector:
        return result
    return (op.lower(result[0], *dims), result[1]) if amax else op.lower(result, *dims)


def resolved(a: torch.Tensor, epilogue: Epilogue) -> Epilogue:
    """The epilogue with the precision in force where the call gives none.

    The operators read None as "highest", and a call with fewer keywords takes less host time.
    """
    if a.dtype is not _f32:
        return epilogue
    chosen = epilogue.precision
    if chosen is None and a.is_cuda:
        chosen = precision.default()
    return epilogue.with_precision(None if chosen == "highest" else chosen)


def fitting(
    terms: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor, chosen: str | None
) -> torch.Tensor | None:
    """The terms of b if this product multiplies terms: float32 with precision "highest"."""
    return terms if chosen in (None, "highest", "prepared") and a.dtype is b.dtype is _f32 else None


def autocast(*tensors: Any) -> Any:
    """Casts as torch.autocast does for torch.mm and torch.addmm."""
    device = tensors[0].device.type
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return [
        tensor.to(dtype)
        if tensor is not None and tensor.dtype in _CAST and tensor.device.type == device
        else tensor
        for tensor in tensors
    ]


def _lifted_scales(dims, scales):
    """Block scales of a 1-D operand are 1-D too: they get the dimension that the operand gets."""
    scale_a, scale_b = scales.scale_a, scales.scale_b
    if dims[0] == 1 and scale_a is not None and scale_a.dim() == 1:
        scales = scales._replace(scale_a=scale_a.unsqueeze(-2))
    if dims[1] == 1 and scale_b is not None and scale_b.dim() == 1:
        scales = scales._replace(scale_b=scale_b.unsqueeze(-1))
    return scales


def into(
    op: Operator, call: Operator, out: torch.Tensor, view: torch.Tensor, *operands: Any
) -> torch.Tensor:
    """Calls the operator that writes into out. It has no derivative, so gradients are refused."""
    *tensors, epilogue = operands
    named = _named(op, *tensors, out)
    named |= dict(zip(call.constant_names, call.constants, strict=True))
    for name, tensor in named.items():
        if tensor is None:
            continue
        tangent = in_dual_level() and forward_ad.unpack_dual(tensor).tangent
        if (_grad_enabled() and tensor.requires_grad) or isinstance(tangent, _tensor):
            raise RuntimeError(
                f"tcgemm.{op.name}: out= cannot be differentiated, but {name} needs a gradient; "
                f"pass no out=, call under torch.no_grad(), or pass {name}.detach()."
            )
        if is_batched(tensor):
            raise RuntimeError(
                f"tcgemm.{op.name}: out= does not work under torch.vmap, but {name} is mapped "
                "over; pass no out=."
            )
    traced = _compiling()
    epilogue = invariance.kept(epilogue) if traced else epilogue
    a, b, c, bias, residual = tensors
    if c is out and epilogue.beta != 0:
        c = c.clone()  # a kernel reads it while it writes out
    call.call(call.out, a, b, c, bias, residual, epilogue, out=view)
    if not (traced or out.is_inference()):
        # A backward that saved `out` has to notice; torch counts only writes of its own operators.
        torch.autograd.graph.increment_version(out)
    return out


def _overridden(function, op, a, b, c, bias, residual, out, epilogue, scales, amax):
    """Hands the call to the tensors' own __torch_function__. NotImplemented: no tensor has one."""
    tensors = tensors_of(a, b, c, bias, residual, out, *scales)
    if not has_torch_function(tensors):
        return NotImplemented
    first = (c, a, b) if op.adds_c else (a, b, bias) if op is LINEAR else (a, b)
    keywords = op.keywords(epilogue) | scales.keywords() | {"residual": residual, "out": out}
    if amax is not False:
        keywords["amax"] = amax
    if op is not LINEAR:
        keywords["bias"] = bias
    return handle_torch_function(function, tensors, *first, **keywords)


def tensors_of(*arguments: Any) -> list[Any]:
    """The arguments that torch may dispatch by: an Operand has its own function instead."""
    return [argument for argument in arguments if not isinstance(argument, Operand)]


def _named(op: Operator, *tensors: Any) -> dict[str, Any]:
    """The names of a, b, c, bias, residual and out in errors, and the tensors."""
    names = (*op.operand_names, "c", "bias", "residual", "out")
    return dict(zip(names, tensors, strict=True))


def all_tensors(op: Operator, a: object, b: object, c: object, *others: object) -> bool:
    """Is each a tensor, or None where the operator can do without?"""
    if a is None or b is None or (c is None and op.adds_c):
        return False
    kinds = set(map(type, (a, b, c, *others)))
    return kinds <= USUAL or all(issubclass(kind, (_tensor, type(None))) for kind in kinds)


def no_tensor(function: str, tensors: Mapping[str, Any]) -> TypeError:
    """The error for the first argument that is no tensor. The first two are required. An Operand in
    the second place may be right, so it is named only if no other argument is wrong."""
    places = tuple(tensors)[:2]
    required = (*places, *(("c",) if function in ADDS_C else ()))
    last = [name for name in places[1:] if isinstance(tensors[name], Operand)]
    for name in (*(name for name in tensors if name not in last), *last):
        value = tensors[name]
        if isinstance(value, Operand):
            return TypeError(
                f"tcgemm.{function}: {name} is a {type(value).__name__}, which is the weight of "
                "tcgemm.linear, and whose .t() is the b of mm, matmul and addmm; pass "
                f"{value.mend.format(name)}."
            )
        if not isinstance(value, _tensor) and (value is not None or name in required):
            return wrong_type(function, name, value)
    raise AssertionError("every operand is a tensor")


def amax_with_out(function: str) -> RuntimeError:
    """The error for amax=True together with out=."""
    return RuntimeError(
        f"tcgemm.{function}: with amax=True two tensors are returned, so there is no out=; "
        "leave one of them out."
    )


def clearer_error(
    op: Operator, error: RuntimeError, tensors: Mapping[str, Any], epilogue: Epilogue
) -> Exception | None:
    """The error to raise for one that a call of an operator with these tensors, by their names,
    raised; None: that one."""
    if _compiling():
        return None
    if isinstance(error, NotImplementedError):
        return _nested(op, tensors)
    return refusal(op.name, error, epilogue)


def _nested(op, tensors):
    """The error for nested tensors, the only tensors for which the dispatcher finds no kernel."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.is_nested:
            return RuntimeError(
                f"tcgemm.{op.name}: {name} is a nested tensor, but every operand must be a dense, "
                f"strided tensor; pass {name}.to_padded_tensor(0.0), or one product for each part "
                f"of {name}.unbind()."
            )
    return None
