"""Derivatives of every operator, from one set of formulas.

    z   = alpha * (a @ b) + beta * c + bias            out = act(z) + residual

    gz  = g * act'(z)        ga = alpha * gz @ b^T     gc = beta * gz     gresidual = g
                             gb = alpha * a^T @ gz     gbias = gz         (each summed to its shape)
    tz  = alpha * (ta @ b + a @ tb) + beta * tc + tbias
    tout = act'(z) * tz + tresidual

z is computed again in backward instead of being kept: that is one product more, and no second
result in memory. relu without a residual needs no z, the sign of the result is enough. Products are
tcgemm's own, so derivatives of derivatives follow by themselves; they accumulate in f32 (f64 for
f64) also where the forward was asked for an f16 accumulator.

Two ways lead to the one Function below:
- the public functions apply it directly (`call`), the fastest way in eager mode;
- each operator has it as its Autograd kernel, so torch.compile, functorch's levels and a direct
  torch.ops.tcgemm call find it too. torch.library.register_autograd would do for reverse mode only:
  it returns a zero tangent in forward mode, silently, and raises under torch.func.grad.
"""

import math

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from tcgemm.dtypes import accumulator
from tcgemm.operators import ALL, MATMUL, OPERANDS

_aten = torch.ops.aten
_below_autograd = torch._C._AutoDispatchBelowAutograd
_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled
_transforms_active = torch._C._are_functorch_transforms_active


def call(op, a, b, c, bias, residual, *options):
    """Runs an operator with as little on the way as this call allows."""
    if _compiling() or _transforms_active():
        return op.run(a, b, c, bias, residual, *options)  # its Autograd kernel decides
    if forward_ad._current_level >= 0 or _requires_grad(a, b, c, bias, residual):
        return Product.apply(op, a, b, c, bias, residual, *options)
    with _below_autograd():
        return op.run(a, b, c, bias, residual, *options)


def gemm(a, b, alpha, out_dtype=None):
    """alpha * (a @ b), differentiable: the product that the formulas use."""
    return call(MATMUL, a, b, None, None, None, None, alpha, 1.0, out_dtype, None)


def _rows(batch):
    """[..., M, K] as one matrix."""
    return batch.reshape(math.prod(batch.shape[:-1]), batch.shape[-1])


def _requires_grad(a, b, c, bias, residual):
    return _grad_enabled() and (
        a.requires_grad
        or b.requires_grad
        or (bias is not None and bias.requires_grad)
        or (residual is not None and residual.requires_grad)
        or (c is not None and c.requires_grad)
    )


def _levels():
    """Whether forward-mode or functorch's levels may look at the next operation."""
    return forward_ad._current_level >= 0 or _transforms_active()


def _gate(g, z, activation):
    """g * act'(z), differentiable in g and z as often as one likes."""
    g = g.to(z.dtype)
    if activation == "relu":
        return _aten.threshold_backward(g, z, 0)
    if activation == "silu":
        if not (_grad_enabled() or _levels()):
            return _aten.silu_backward(g, z)  # one pass over memory, but no derivative
        sigmoid = z.sigmoid()
        return g * sigmoid * (1 + z * (1 - sigmoid))
    return _aten.gelu_backward(g, z, approximate="tanh" if activation == "gelu_tanh" else "none")


class _Like:
    """What a gradient has to look like, without keeping the tensor itself alive."""

    __slots__ = ("column_major", "dtype", "shape")

    def __init__(self, tensor):
        self.shape = tensor.shape
        self.dtype = tensor.dtype
        strides = tensor.stride()  # of a traced tensor these are symbols, hence bool
        self.column_major = len(strides) > 1 and bool(strides[-2] == 1 and strides[-1] != 1)

    def reduce(self, gradient):
        """Summed over what was broadcast, in the input's dtype."""
        return gradient.sum_to_size(self.shape).to(self.dtype)


def _product(x, y, alpha, like, column_major, shape, batch):
    """alpha * (x @ y), summed from `batch` to the batch of `shape`, laid out as the input is."""
    summed = batch != shape[:-2]
    out_dtype = accumulator(like.dtype) if summed else None
    if column_major:
        result = gemm(y.mT, x.mT, alpha, out_dtype).mT
    else:
        result = gemm(x, y, alpha, out_dtype)
    return result.sum_to_size(shape).to(like.dtype) if summed else result


def _gradient_a(op, gz, b, dims, like, alpha):
    vector = dims[0] == 1
    shape = (1, *like.shape) if vector else like.shape
    b = op.matrix_b(b, dims[1])
    ga = _product(gz, b.mT, alpha, like, like.column_major, shape, gz.shape[:-2])
    return ga.squeeze(-2) if vector else ga


def _gradient_b(op, gz, a, dims, like, alpha):
    vector = dims[1] == 1
    shape = (*like.shape, 1) if vector else like.shape[::-1] if op.weight else like.shape
    a = op.matrix_a(a, dims[0])
    if len(shape) == 2 and gz.dim() > 2:  # the sum over the batch belongs to the sum over k
        a, gz = _rows(a), _rows(gz)
    column_major = like.column_major != op.weight
    gb = _product(a.mT, gz, alpha, like, column_major, shape, gz.shape[:-2])
    if op.weight:
        return gb.mT
    return gb.squeeze(-1) if vector else gb


def _pre_activation(ctx, a, b, c, bias):
    """z, in the accumulator's precision."""
    _activation, alpha, beta, _out_dtype, acc_dtype = ctx.options
    wide = accumulator(a.dtype)
    return call(ctx.op, a, b, c, bias, None, None, alpha, beta, wide, acc_dtype)


class Product(_SingleLevelFunction):
    """One operator call with its derivatives.

    _SingleLevelFunction is torch.autograd.Function less its own way through functorch: with the
    Autograd kernel, each functorch level reaches this class by the dispatcher, as torch's ops do.
    """

    @staticmethod
    def forward(ctx, op, a, b, c, bias, residual, *options):
        levels = _levels()
        if levels and _transforms_active():
            # apply() turned gradients off, but the next functorch level needs them.
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), _below_autograd():
                output = op.run(a, b, c, bias, residual, *options)
        else:
            with _below_autograd():
                output = op.run(a, b, c, bias, residual, *options)

        _, need_a, need_b, need_c, need_bias, need_residual, *_ = ctx.needs_input_grad
        ctx.set_materialize_grads(False)
        ctx.op, ctx.options, ctx.dims = op, options, (a.dim(), b.dim())
        ctx.like = (
            _Like(a) if need_a else None,
            _Like(b) if need_b else None,
            _Like(c) if need_c else None,
            _Like(bias) if need_bias else None,
            _Like(residual) if need_residual else None,
        )
        activation = options[0]
        need_gz = need_a or need_b or need_c or need_bias
        ctx.sign_of_output = activation == "relu" and residual is None
        need_z = levels or (need_gz and activation is not None and not ctx.sign_of_output)
        saved = (
            a if need_b or need_z else None,
            b if need_a or need_z else None,
            c if need_z else None,
            bias if need_z else None,
            output if need_gz and ctx.sign_of_output else None,
        )
        ctx.save_for_backward(*saved)
        if levels:
            ctx.output = (output.shape, output.dtype)
            ctx.save_for_forward(*saved)
        return output

    @staticmethod
    def backward(ctx, g):
        gradients = [None] * (1 + len(OPERANDS))
        if g is None:
            return tuple(gradients)
        a, b, c, bias, output = ctx.saved_tensors
        like_a, like_b, like_c, like_bias, like_residual = ctx.like
        activation, alpha, beta, _out_dtype, _acc_dtype = ctx.options
        if like_residual is not None:
            gradients[5] = like_residual.reduce(g)
        if like_a is like_b is like_c is like_bias is None:
            return tuple(gradients)

        if activation is not None:
            z = output if ctx.sign_of_output else _pre_activation(ctx, a, b, c, bias)
            g = _gate(g, z, activation)
        gz = ctx.op.lift(g, *ctx.dims)
        if like_c is not None:
            gradients[3] = like_c.reduce(gz * beta)
        if like_bias is not None:
            gradients[4] = like_bias.reduce(gz)
        if like_a is not None:
            gradients[1] = _gradient_a(ctx.op, gz.to(b.dtype), b, ctx.dims, like_a, alpha)
        if like_b is not None:
            gradients[2] = _gradient_b(ctx.op, gz.to(a.dtype), a, ctx.dims, like_b, alpha)
        return tuple(gradients)

    @staticmethod
    def jvp(ctx, _op, *tangents):
        # apply() hides all tangents, but those of outer functorch levels belong to the result. The
        # level is always 0; forward_ad.unpack_dual does not know of it in a compiled graph.
        with forward_ad._set_fwd_grad_enabled(True):
            a, b, c, bias = (
                None if tensor is None else torch._VF._unpack_dual(tensor, level=0)[0]
                for tensor in ctx.saved_tensors[:4]
            )
            return _tangent(ctx, a, b, c, bias, *tangents[:5])


def _tangent(ctx, a, b, c, bias, ta, tb, tc, tbias, tresidual):
    op, dims = ctx.op, ctx.dims
    activation, alpha, beta, _out_dtype, _acc_dtype = ctx.options
    shape, dtype = ctx.output
    wide = accumulator(a.dtype)
    if ta is not None:
        b_matrix = op.matrix_b(b, dims[1])
        tz = gemm(op.matrix_a(ta, dims[0]), b_matrix, alpha, wide)
    else:
        tz = op.lift(a.new_zeros(shape, dtype=wide), *dims)
    if tb is not None:
        a_matrix = op.matrix_a(a, dims[0])
        tz = tz + gemm(a_matrix, op.matrix_b(tb, dims[1]), alpha, wide)
    if tc is not None:
        tz = tz + beta * tc.to(wide)
    if tbias is not None:
        tz = tz + tbias.to(wide)
    tangent = op.lower(tz, *dims)
    if activation is not None:
        tangent = _gate(tangent, _pre_activation(ctx, a, b, c, bias), activation)
    if tresidual is not None:
        tangent = tangent + tresidual.to(wide)
    return tangent.to(dtype)


def _autograd_kernel(op):
    def kernel(*args, **kwargs):
        if _levels() or (_grad_enabled() and torch._C._any_requires_grad(*args)):
            with enable_single_level_autograd_function():
                return Product.apply(op, *op.unpack(args, kwargs))
        with _below_autograd():
            return op.default(*args, **kwargs)

    return kernel


_registrations = torch.library.Library("tcgemm", "FRAGMENT")  # they end with this object
for _op in ALL:
    _registrations.impl(_op.name, _autograd_kernel(_op), "Autograd")
