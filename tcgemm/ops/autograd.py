"""Derivatives of every operator, from one set of formulas.

    s   = scale_a * scale_b
    z   = alpha * s * (a @ b) + beta * c + bias        out = scale_out * (act(z) + residual)

    gr  = g * scale_out      ga = alpha * (gz * s) @ b^T      gc = beta * gz    gresidual = gr
    gz  = gr * act'(z)       gb = alpha * a^T @ (gz * s)      gbias = gz     (summed to its shape)
    tz  = alpha * s * (ta @ b + a @ tb) + beta * tc + tbias
    tout = scale_out * (act'(z) * tz + tresidual)

8-bit operands have no gradient. amax has none, and neither has a result of a dtype other than
float16, bfloat16, float32 and float64. Scales are constants: one that needs a gradient is refused.

The forward keeps z, in the dtype of the result; it is a second result of the Function, so that
second derivatives follow. relu without a residual needs only the sign of the result. Under
torch.func, and where no kernel stores z beside the result, one more product computes z again. So
it does where the result cannot hold every value of the operands' dtype.

gz is rounded to the dtype of the operands for their products alone. c, scales and a bias that no
pass sums get it in f32.
The products are tcgemm's own, so higher derivatives follow. They accumulate in f32 (f64 for f64),
also where the forward had an f16 accumulator, and use the forward's precision.

The Function below is reached in two ways:
- the public functions apply it directly (`calls.call`), which takes the least host time in eager
  mode, and for products with at most a bias PlainGemm, which keeps less;
- it is the Autograd kernel of each operator, for torch.compile, for functorch's levels and for
  direct calls of torch.ops.tcgemm. torch.library.register_autograd serves reverse mode only: it
  silently returns a zero tangent in forward mode, and raises under torch.func.grad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tcgemm.dtypes import DIFFERENTIABLE, accumulator
from tcgemm.ops import calls, direct, fused_backward, invariance
from tcgemm.ops._torch_private import (
    SingleLevelFunction,
    any_requires_grad,
    below_autograd,
    enable_single_level_autograd_function,
    forward_gradients,
    transforms_active,
    under_transform,
    unpack_dual,
)
from tcgemm.ops.direct import DENSE
from tcgemm.ops.epilogue import Epilogue
from tcgemm.ops.grad_checks import check_constants, check_operand
from tcgemm.ops.grad_spec import GradSpec
from tcgemm.ops.operand_gradients import needs_masked_grad, operand_gradients
from tcgemm.ops.operators import ALL, WITH_Z, Operator

_grad_enabled = torch.is_grad_enabled


def pre_activation(op: Operator, epilogue: Epilogue, a: Any, b: Any, c: Any, bias: Any) -> Any:
    """z, in the accumulator's precision."""
    epilogue = epilogue._replace(activation=None, out_dtype=accumulator(a.dtype))
    return calls.run(op.before_activation(), a, b, c, bias, None, epilogue)


def _inner_tensors(*operands):
    """The tensors inside of each SparseTensor24. They are saved as well, since torch counts their
    changes apart from changes of the SparseTensor24, and looks for changes of what is saved."""
    return tuple(inner for operand in operands for inner in getattr(operand, "versioned", ()))


class Gemm(SingleLevelFunction):
    """One operator call with its derivatives.

    SingleLevelFunction is torch.autograd.Function without its handling of functorch: every level
    of functorch reaches this class through the Autograd kernel, as it reaches torch's operators.
    """

    @staticmethod
    def forward(
        ctx: Any, op: Operator, a: Any, b: Any, c: Any, bias: Any, residual: Any, epilogue: Epilogue
    ) -> Any:
        """The result of the operator; ctx gets what the derivatives need."""
        levels = under_transform()
        need_a, need_b, need_c, need_bias = ctx.needs_input_grad[1:5]
        activation = epilogue.activation
        need_gz = need_a or need_b or need_c or need_bias
        ctx.sign_of_output = (
            activation == "relu"
            and residual is None
            and op.keeps_sign
            and fused_backward.keeps_sign(a.dtype, epilogue.out_dtype)
        )
        need_z = need_gz and activation is not None and not ctx.sign_of_output
        ctx.keeps_z = (
            need_z
            and not levels
            and fused_backward.keeps_z(op, a, (b, c, bias, residual), epilogue.out_dtype)
        )
        z = None
        if levels and transforms_active():
            # apply() switched gradients off, but the next functorch level needs them.
            with torch.enable_grad(), forward_gradients(True), below_autograd():
                result = op.run(a, b, c, bias, residual, epilogue)
        elif ctx.keeps_z:
            with below_autograd():
                result, z = op.call(op.with_z, a, b, c, bias, residual, epilogue)
        else:
            with below_autograd():
                result = op.run(a, b, c, bias, residual, epilogue)
        output = result[0] if op.amax else result

        if need_a:
            check_operand(op, 0, a)
        if need_b:
            check_operand(op, 1, b)
        ctx.set_materialize_grads(False)
        ctx.op, ctx.epilogue, ctx.dims = op, invariance.kept(epilogue), (a.dim(), b.dim())
        if op.constants:  # saved with the other tensors
            ctx.op = op.with_constants((None,) * len(op.constants))
        ctx.amax, ctx.differentiable = op.amax, output.dtype in DIFFERENTIABLE
        if op.amax or not ctx.differentiable:
            ctx.mark_non_differentiable(
                *(() if ctx.differentiable else (output,)), *(result[1:] if op.amax else ())
            )
        inputs = zip((a, b, c, bias, residual), ctx.needs_input_grad[1:6], strict=True)
        ctx.specs = [GradSpec.of(tensor) if needed else None for tensor, needed in inputs]
        need_z = levels or (need_z and not ctx.keeps_z)  # by a product of its own
        saved = (
            a if need_b or need_z or (need_a and needs_masked_grad(a)) else None,
            b if need_a or need_z or (need_b and needs_masked_grad(b)) else None,
            c if need_z else None,
            bias if need_z else None,
            z if ctx.keeps_z else output if need_gz and ctx.sign_of_output else None,
            *op.constants,
        )
        if not (type(a) in DENSE and type(b) in DENSE):
            saved += _inner_tensors(*saved[:2])
        ctx.save_for_backward(*saved)
        if levels:
            ctx.output = (output.shape, output.dtype)
            ctx.save_for_forward(*saved)
        return (result, z) if ctx.keeps_z else result

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, g: torch.Tensor | None, *others: Any
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of forward's arguments after ctx."""
        gradients: list[torch.Tensor | None] = [None] * 7
        gz = others[0] if ctx.keeps_z else None  # of z itself, in a second derivative
        if g is None and gz is None:
            return tuple(gradients)
        a, b, c, bias, z, *constants = ctx.saved_tensors
        op = ctx.op.with_constants(constants[: len(ctx.op.constants)])
        spec_a, spec_b, spec_c, spec_bias, spec_residual = ctx.specs
        epilogue = ctx.epilogue
        activation = epilogue.activation
        if g is not None:
            g = op.apply_scale_out(g)
            if spec_residual is not None:
                gradients[5] = spec_residual.reduce(g)
        if spec_a is spec_b is spec_c is spec_bias is None:
            return tuple(gradients)

        sums = None
        if g is not None:
            if z is None and activation is not None:
                z = pre_activation(op, epilogue, a, b, c, bias)
            sum_dtype = None if gz is not None or spec_bias is None else spec_bias.row_sum_dtype(g)
            # The products round gz to the dtype of their operands. c, the scales and sums that the
            # pass does not make take it before.
            wide = (
                spec_c is not None
                or (spec_bias is not None and sum_dtype is None)
                or any(constant is not None for constant in op.constants)
            )
            spec = spec_a or spec_b
            dtype = torch.float32 if wide else g.dtype if spec is None else spec.dtype
            before, sums = fused_backward.run(g, z, activation, dtype, sum_dtype)
            gz = before if gz is None else before + gz
        gz = op.lift(gz, *ctx.dims)
        if spec_c is not None:
            gradients[3] = spec_c.reduce(gz, epilogue.beta)
        if spec_bias is not None:
            gradients[4] = spec_bias.reduce(gz) if sums is None else spec_bias.shaped(sums)
        if spec_a is spec_b is None:
            return tuple(gradients)

        gradients[1:3] = operand_gradients(op, gz, a, b, ctx.dims, spec_a, spec_b, epilogue)
        return tuple(gradients)

    @staticmethod
    def jvp(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, _op: None, ta: Any, tb: Any, tc: Any, tbias: Any, tresidual: Any, _epilogue: None
    ) -> Any:
        """The tangent of the result from the tangents of the operands."""
        if not ctx.differentiable:
            return (None, None) if ctx.amax else None
        # apply() hides all tangents, but the result has tangents of outer functorch levels.
        with forward_gradients(True):
            op, a, b, c, bias = primals(ctx)
            tangent = _tangent(ctx, op, a, b, c, bias, ta, tb, tc, tbias, tresidual)
        return (tangent, None) if ctx.amax else tangent


def primals(ctx: Any) -> tuple[Operator, Any, Any, Any, Any]:
    """(op, a, b, c, bias) of forward, without the tangents of this level."""
    # The level is always 0; forward_ad.unpack_dual does not know of it in a compiled graph.
    a, b, c, bias, _output, *constants = (
        None if tensor is None else unpack_dual(tensor, level=0)[0] for tensor in ctx.saved_tensors
    )
    return ctx.op.with_constants(constants[: len(ctx.op.constants)]), a, b, c, bias


def _tangent(ctx, op, a, b, c, bias, ta, tb, tc, tbias, tresidual):
    dims = ctx.dims
    epilogue = ctx.epilogue
    shape, dtype = ctx.output
    wide = accumulator(a.dtype)
    factor_a, factor_b, precision = op.grad_operands(a, b, epilogue.precision)
    factors = epilogue.with_precision(precision)
    if ta is not None:
        check_operand(op, 0, a)
        ta, factor = op.matrix_a(ta, dims[0]), op.matrix_b(factor_b, dims[1])
        tz = op.apply_scales(calls.gemm(ta.to(factor.dtype), factor, factors, wide))
    else:
        tz = op.lift(a.new_zeros(shape, dtype=wide), *dims)
    if tb is not None:
        check_operand(op, 1, b)
        tb, factor = op.matrix_b(tb, dims[1]), op.matrix_a(factor_a, dims[0])
        tz = tz + op.apply_scales(calls.gemm(factor, tb.to(factor.dtype), factors, wide))
    if tc is not None:
        tz = tz + epilogue.beta * tc.to(wide)
    if tbias is not None:
        tz = tz + tbias.to(wide)
    tangent = op.lower(tz, *dims)
    if epilogue.activation is not None:
        z = pre_activation(op, epilogue, a, b, c, bias)
        tangent = fused_backward.composed(tangent, z, epilogue.activation)
    if tresidual is not None:
        tangent = tangent + tresidual.to(wide)
    return op.apply_scale_out(tangent).to(dtype)


def _autograd_kernel(op: Operator) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if under_transform() or (_grad_enabled() and any_requires_grad(*args)):
            call, operands = op.bind(args, kwargs)
            check_constants(call)
            with enable_single_level_autograd_function():
                return calls.first_result(op, calls.nodes[op.name].apply(call, *operands))
        with below_autograd():
            return op.default(*args, **kwargs)

    return kernel


class PlainGemm(Gemm):
    """The Function of a product with at most a bias, outside of transforms and of forward mode.

    It keeps what Gemm keeps, with the least host time: GradSpecs are made in the backward.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, op: Operator, a: Any, b: Any, bias: Any, epilogue: Epilogue
    ) -> torch.Tensor:
        """The result of the operator; ctx gets what the backward needs."""
        need_a, need_b = a.requires_grad, b.requires_grad
        ctx.save_for_backward(a if need_b else None, b if need_a else None)
        ctx.set_materialize_grads(False)
        both = need_a and need_b  # then both are saved
        ctx.call = (
            op,
            invariance.kept(epilogue) if invariance.active else epilogue,
            (a.dim(), b.dim()),
            None if both or not need_a else GradSpec.of(a),
            None if both or not need_b else GradSpec.of(b),
            None if bias is None or not bias.requires_grad else GradSpec.of(bias),
        )
        result = direct.run(op, a, b, None, bias, None, epilogue)
        if result is not None:
            return result
        with below_autograd():
            return op.run(a, b, None, bias, None, epilogue)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, g: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of forward's arguments after ctx."""
        if g is None:
            return (None,) * 5
        a, b = ctx.saved_tensors
        op, epilogue, dims, spec_a, spec_b, spec_bias = ctx.call
        if a is not None and b is not None:
            spec_a, spec_b = GradSpec.of(a), GradSpec.of(b)
        if dims[1] == 2 and dims[0] > 1 and not _grad_enabled():
            specs = (spec_a, spec_b, spec_bias)
            gradients = fused_backward.of_product(op, g, a, b, *specs, epilogue)
            if gradients is not None:
                return None, *gradients, None
        gz = op.lift(g, *dims)
        gbias = None
        if spec_bias is not None:
            _, sums = fused_backward.run(g, None, None, g.dtype, spec_bias.row_sum_dtype(g))
            gbias = spec_bias.reduce(gz) if sums is None else spec_bias.shaped(sums)
        ga, gb = operand_gradients(op, gz, a, b, dims, spec_a, spec_b, epilogue)
        return None, ga, gb, gbias, None


_registrations = torch.library.Library("tcgemm", "FRAGMENT")  # owns the registrations


def _node(name: str, base: type[Gemm]) -> Any:
    """A Function for one operator. torch calls its node TcgemmAddmmBackward, for example, which is
    what grad_fn, the profiler and anomaly mode show."""
    words = name.split("_")
    return type("Tcgemm" + "".join(map(str.capitalize, words)), (base,), {"__doc__": base.__doc__})


def register(op: Operator, base: type[Gemm] = Gemm) -> None:
    """Makes a Function, that above or one derived from it, the Autograd kernel of an operator."""
    calls.nodes[op.name], plain = _node(op.name, base), _node(op.name, PlainGemm)
    calls.plain_calls[op.name] = plain.apply
    _registrations.impl(op.name, _autograd_kernel(op), "Autograd")


def register_constant(name: str, overload: str = "default") -> None:
    """Gives an operator an Autograd kernel that records no derivative."""
    op = getattr(getattr(torch.ops.tcgemm, name), overload)
    name = name if overload == "default" else f"{name}.{overload}"

    def kernel(*args, **kwargs):
        with below_autograd():
            return op(*args, **kwargs)

    _registrations.impl(name, kernel, "Autograd")


for _op in ALL:
    register(_op)
register_constant("prepare")
for _op in WITH_Z:
    register_constant(_op.name, "with_z")
register_constant("_product_backward")
register_constant("_sum_rows")
register_constant("_activation_backward")
