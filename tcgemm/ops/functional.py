"""The public functions: torch's names and order, tensors positional, all else keyword-only.

dispatch.py has the steps that follow. The functions differ in their operator and its operands.
"""

import torch

from tcgemm.ops import dispatch, query
from tcgemm.ops import precision as torch_precision
from tcgemm.ops._torch_private import (
    below_transform,
    is_batched,
    is_wrapped_by_transform,
    transforms_active,
)
from tcgemm.ops.arguments import check_amax, refusal
from tcgemm.ops.epilogue import Scales, epilogue_of
from tcgemm.ops.explanation import Explanation
from tcgemm.ops.operators import ADDMM, BADDBMM, BMM, LINEAR, MATMUL, MM
from tcgemm.ops.prepack import Prepared

_COMMON = """
    Computed in the accumulator's type, rounded once at the end, in this order::

        value = act(alpha * scale_a * scale_b * ((a - zero_a) @ (b - zero_b)) + beta * c + bias)
                + residual
        out = value * scale_out

    Keyword arguments:
        activation: "relu", "gelu", "gelu_tanh" (gelu's tanh form), "silu", or None.
        residual (Tensor): added last; broadcasts to the shape of the result.
        alpha (float): multiplies the product.
        scale_a (Tensor): float32 multipliers of a's elements, as tcgemm.quantize returns them: one
            element, or (M, 1); for float8 operands also blocks, (M, ceil(K/128)) for 1 x 128 and
            (ceil(M/128), ceil(K/128)) for 128 x 128. Batch dimensions in front broadcast.
        scale_b (Tensor): float32 multipliers in the layout of b: one element, (1, N),
            (ceil(K/128), N) or (ceil(K/128), ceil(N/128)). If b is the transpose of a quantised
            tensor, pass the transpose of its scale.
        zero_a, zero_b (Tensor): int32, subtracted from int8 or uint8 operands: one element, or
            (M, 1) and (1, N).
        scale_out (Tensor): float32, one element; multiplies the value before it is rounded.
        amax (bool): True returns (out, amax), amax being the largest magnitude of `value`, a
            float32 scalar; NaN if one is NaN. Not together with out.
        out_dtype (torch.dtype): the dtype of the result. The default; the alternatives:
            float16, bfloat16, float32   the operands'; these three, float8_e4m3fn, float8_e5m2
            float64                      float64
            float8_e4m3fn, float8_e5m2   bfloat16; float16, float32, float8_e4m3fn, float8_e5m2
            int8, uint8                  int32 (exact modulo 2**32; no scales); float16, bfloat16,
                                         float32, int8
            8-bit results saturate.
        acc_dtype (torch.dtype): the dtype of the accumulator. Default: float32, for float64
            operands float64, for integers int32. float16 operands can also use float16; gradients
            use the default.
        precision (str): for float32 operands "highest" (all bits), "high" (rounded to tf32) or
            "medium" (rounded to bfloat16); None is "highest" on the CPU, and on CUDA what torch
            would use: torch.backends.cuda.matmul.fp32_precision (ieee: highest, tf32: high, none:
            torch.backends.fp32_precision, where bf16 is medium), which is also where
            torch.set_float32_matmul_precision writes. It is read once a call, and the backward
            uses the forward's. In a compiled graph it is a constant: torch.compile compiles anew
            when TF32 becomes allowed or forbidden, not between "high" and "medium". "highest" on
            CUDA is at least as accurate as float32 sums, and needs compute capability 9.0: large
            products run on tensor cores in 16-bit parts, of which the GPU itself chooses the kind,
            small ones in float64. Memory for the parts, 1.5 times that of the operands, is taken
            for the time of the call; tcgemm.prepare makes those of a weight once.
            For float8 operands "promoted" (default: sums of 128 products are added in float32) or
            "fast" (all in the tensor cores, about 14 bits). Other dtypes ignore the values for
            float32.
        out (Tensor): takes the result. It has the result's shape, dtype and device, any strides
            that do not overlap, and shares no memory with an input. As in torch, no input may
            need a gradient, and autocast does not apply.

    Operands have one dtype: float16, bfloat16, float32, float64, float8_e4m3fn and float8_e5m2 in
    any mix, int8 and uint8 in any mix. c, bias and residual are float16, bfloat16 or float32,
    independently (also float64 if the operands are; int32 for an int32 result). Any strides work
    (tcgemm.check_layout says which are fast), any size too: an empty result is empty, and with
    K = 0 the product is zero. linear takes a tcgemm.Prepared in place of its float32 weight; mm,
    matmul and addmm take its .t() as b. One of the operands (not of bmm and
    baddbmm) may be a tcgemm.SparseTensor24.

    Gradients of any order, forward mode, torch.func, torch.compile and torch.autocast work as with
    torch.mm. Operands of 8 bits have no gradient (one that needs it is refused), c, bias and
    residual beside them have. Scales and zero points are constants: a scale that needs a gradient
    is refused. Results of another dtype than float16, bfloat16, float32 and float64 carry none, nor
    does amax.

    Raises:
        TypeError: an operand is no tensor, or an option has a wrong type, such as a str in place
            of a torch.dtype or a function in place of the word of an activation.
        RuntimeError: a shape, dtype, device or option that is not supported; the message names
            the tensor, the expected and the given value, and a remedy.
"""


def _documented(function):
    """Inserts the text that all functions share between a docstring's head and its example.

    `python -OO` drops docstrings.
    """
    if function.__doc__ is None:
        return function
    head, example = function.__doc__.split("\n    Example:\n")
    function.__doc__ = f"{head}{_COMMON}\n    Example:\n{example}"
    return function


@_documented
def mm(
    a,
    b,
    *,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    scale_a=None,
    scale_b=None,
    zero_a=None,
    zero_b=None,
    scale_out=None,
    amax=False,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """Matrix product with a fused epilogue: a (M, K) @ b (K, N) -> (M, N).

    bias is (N,), (1, N) or (M, 1).

    Example:
        >>> a, w = torch.randn(64, 32, dtype=torch.bfloat16), torch.randn(48, 32).bfloat16()
        >>> tcgemm.mm(a, w.t(), bias=torch.zeros(48), activation="gelu").shape
        torch.Size([64, 48])
    """
    epilogue = epilogue_of(activation, alpha, 1.0, out_dtype, acc_dtype, precision)
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(mm, MM, out, a, b, None, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(mm, MM, out, a, b, None, bias, residual, epilogue, scales, amax)


@_documented
def bmm(
    a,
    b,
    *,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    scale_a=None,
    scale_b=None,
    zero_a=None,
    zero_b=None,
    scale_out=None,
    amax=False,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """Products of equal batches of matrices: a (B, M, K) @ b (B, K, N) -> (B, M, N).

    bias is (N,), (1, N) or (M, 1), or has a batch dimension in front: (B, 1, N), (B, M, 1).

    Example:
        >>> tcgemm.bmm(torch.randn(8, 16, 32), torch.randn(8, 32, 24)).shape
        torch.Size([8, 16, 24])
    """
    epilogue = epilogue_of(activation, alpha, 1.0, out_dtype, acc_dtype, precision)
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(bmm, BMM, out, a, b, None, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(bmm, BMM, out, a, b, None, bias, residual, epilogue, scales, amax)


@_documented
def matmul(
    a,
    b,
    *,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    scale_a=None,
    scale_b=None,
    zero_a=None,
    zero_b=None,
    scale_out=None,
    amax=False,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """Product with torch.matmul's rules: a (..., M, K) @ b (..., K, N) -> (..., M, N).

    Batch dimensions broadcast. A 1-D a is a row (K,), a 1-D b a column (K,), and the result has no
    such dimension. bias is (N,), (1, N) or (M, 1), with batch dimensions in front if need be.

    Example:
        >>> tcgemm.matmul(torch.randn(5, 1, 16, 32), torch.randn(3, 32, 24)).shape
        torch.Size([5, 3, 16, 24])
    """
    epilogue = epilogue_of(activation, alpha, 1.0, out_dtype, acc_dtype, precision)
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(matmul, MATMUL, out, a, b, None, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(
        matmul, MATMUL, out, a, b, None, bias, residual, epilogue, scales, amax
    )


@_documented
def addmm(
    c,
    a,
    b,
    *,
    beta=1.0,
    alpha=1.0,
    bias=None,
    activation=None,
    residual=None,
    scale_a=None,
    scale_b=None,
    zero_a=None,
    zero_b=None,
    scale_out=None,
    amax=False,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """Adds a matrix product to c: beta * c + alpha * (a (M, K) @ b (K, N)) -> (M, N).

    c broadcasts to (M, N) as in torch.addmm; with beta = 0 it is not read, so a NaN in it does not
    spread. bias is (N,), (1, N) or (M, 1).

    Example:
        >>> c, a, b = torch.randn(24), torch.randn(16, 32), torch.randn(32, 24)
        >>> tcgemm.addmm(c, a, b, beta=0.5, activation="relu").shape
        torch.Size([16, 24])
    """
    epilogue = epilogue_of(activation, alpha, beta, out_dtype, acc_dtype, precision)
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(addmm, ADDMM, out, a, b, c, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(addmm, ADDMM, out, a, b, c, bias, residual, epilogue, scales, amax)


@_documented
def baddbmm(
    c,
    a,
    b,
    *,
    beta=1.0,
    alpha=1.0,
    bias=None,
    activation=None,
    residual=None,
    scale_a=None,
    scale_b=None,
    zero_a=None,
    zero_b=None,
    scale_out=None,
    amax=False,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """Adds a batch of products to c: beta * c + alpha * (a (B, M, K) @ b (B, K, N)) -> (B, M, N).

    c broadcasts to (B, M, N) as in torch.baddbmm; with beta = 0 it is not read, so a NaN in it does
    not spread. bias is (N,), (1, N) or (M, 1), or has a batch dimension in front.

    Example:
        >>> c, a, b = torch.randn(16, 24), torch.randn(8, 16, 32), torch.randn(8, 32, 24)
        >>> tcgemm.baddbmm(c, a, b, beta=0.5, activation="relu").shape
        torch.Size([8, 16, 24])
    """
    epilogue = epilogue_of(activation, alpha, beta, out_dtype, acc_dtype, precision)
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(baddbmm, BADDBMM, out, a, b, c, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(
        baddbmm, BADDBMM, out, a, b, c, bias, residual, epilogue, scales, amax
    )


@_documented
def linear(
    x,
    weight,
    bias=None,
    *,
    activation=None,
    residual=None,
    alpha=1.0,
    scale_a=None,
    scale_b=None,
    zero_a=None,
    zero_b=None,
    scale_out=None,
    amax=False,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
):
    """The layer of torch.nn.functional.linear: x (..., K) @ weight (N, K).t() -> (..., N).

    In the formula below a is x and b is weight.t(): scale_b and zero_b are in the layout of
    weight.t(), so of (weight, scale) = tcgemm.quantize(...) pass weight and scale_b=scale.t().
    bias is (N,). x may be a jagged NestedTensor (B, j, K), whose result (B, j, N) has its lengths;
    residual is then one too, or a vector.

    Example:
        >>> x, weight = torch.randn(2, 10, 32), torch.randn(48, 32)
        >>> tcgemm.linear(x, weight, torch.zeros(48), activation="silu").shape
        torch.Size([2, 10, 48])
        >>> x8, scale_x = tcgemm.quantize(x, torch.float8_e4m3fn, "row")
        >>> w8, scale_w = tcgemm.quantize(weight, torch.float8_e4m3fn, "row")
        >>> tcgemm.linear(x8, w8, scale_a=scale_x, scale_b=scale_w.t()).dtype
        torch.bfloat16
    """
    epilogue = epilogue_of(activation, alpha, 1.0, out_dtype, acc_dtype, precision)
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(linear, LINEAR, out, x, weight, None, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(
        linear, LINEAR, out, x, weight, None, bias, residual, epilogue, scales, amax
    )


def check_layout(
    a,
    b,
    *,
    c=None,
    beta=1.0,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    scale_a=None,
    scale_b=None,
    zero_a=None,
    zero_b=None,
    scale_out=None,
    amax=False,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
    device=None,
    kernel=None,
):
    """Says how the operands of matmul(a, b, ...) are stored, and what would make it faster.

    For each operand: which major it has, its leading dimension and alignment, whether TMA can read
    it, which kernel family and which prepare pass follow. The operators decide by the same code.

    Arguments are those of matmul, and c and beta of addmm: a (..., M, K), b (..., K, N), bias,
    activation, residual, alpha, scale_a, scale_b, zero_a, zero_b, scale_out, amax, out_dtype,
    acc_dtype, precision, out. a or b may be a SparseTensor24, b the .t() of a Prepared. Nothing is
    computed, so tensors on the CPU or on "meta" do as well.

    Keyword arguments:
        device (str): the GPU to answer for, such as "H200"; default: the tensors', or "H200".
        kernel (str): only kernels whose name contains this text.

    Returns a str that prints as text and has what it says as attributes: kernel, tile, grid,
    microseconds, bytes, bound, why and others (help(type(...)) lists them), all of them in .fields.
    Raises what matmul raises.

    Example:
        >>> a = torch.empty(4096, 4095, dtype=torch.bfloat16, device="meta")
        >>> tcgemm.check_layout(a, a.t()).copies  # each row of a starts at an odd multiple of 2
        'ab'
    """
    return explained(
        "check_layout",
        (a, b, c, bias, residual, out),
        Scales(scale_a, scale_b, zero_a, zero_b, scale_out),
        epilogue_of(activation, alpha, beta, out_dtype, acc_dtype, precision),
        amax=amax,
        device=device,
        kernel=kernel,
    )


def explain(
    a,
    b,
    *,
    c=None,
    beta=1.0,
    bias=None,
    activation=None,
    residual=None,
    alpha=1.0,
    scale_a=None,
    scale_b=None,
    zero_a=None,
    zero_b=None,
    scale_out=None,
    amax=False,
    out_dtype=None,
    acc_dtype=None,
    precision=None,
    out=None,
    device=None,
    kernel=None,
):
    """Says what matmul(a, b, ...) would run on a GPU, and why.

    The kernel, its tile, stages and cluster, the grid and its waves, bytes, FLOPs, arithmetic
    intensity, what bounds the time (compute, memory, launch), and the reason of the choice.

    Arguments are those of check_layout: a, b, c, beta, bias, activation, residual, alpha, scale_a,
    scale_b, zero_a, zero_b, scale_out, amax, out_dtype, acc_dtype, precision, out, device, kernel.
    So is what it returns; raises what matmul raises.

    Example:
        >>> a = torch.empty(8192, 8192, dtype=torch.float16, device="meta")
        >>> print(tcgemm.explain(a, a, device="H200"))  # doctest: +SKIP
        >>> tcgemm.explain(a, a, device="H200").bound
        'compute'
    """
    return explained(
        "explain",
        (a, b, c, bias, residual, out),
        Scales(scale_a, scale_b, zero_a, zero_b, scale_out),
        epilogue_of(activation, alpha, beta, out_dtype, acc_dtype, precision),
        amax=amax,
        device=device,
        kernel=kernel,
    )


def _refuse_mapped(name, tensors):
    """A batching rule returns tensors, but the question has one answer for the whole batch."""
    for argument, tensor in tensors.items():
        while tensor is not None and is_wrapped_by_transform(tensor):
            if is_batched(tensor):
                raise RuntimeError(
                    f"tcgemm.{name}: {argument} is mapped over by torch.vmap, which runs one "
                    "product for the whole batch; ask outside of vmap, with batches as matmul "
                    "takes them."
                )
            tensor = below_transform(tensor)


def explained(name, tensors, scales, epilogue, *, amax, device, kernel):
    """The answer of the operator `name` to the call with these arguments.

    A compiled function is interrupted for it.
    """
    if torch.compiler.is_compiling():
        ask = torch.compiler.disable(explained)
        return ask(name, tensors, scales, epilogue, amax=amax, device=device, kernel=kernel)
    a, b, c, bias, residual, out = tensors
    parts = None
    if type(b) is Prepared:
        b, parts = b.operand(name, "b", True)
    if not dispatch.all_tensors(MATMUL, a, b, c, bias, residual, out, *scales):
        named = {"a": a, "b": b, "c": c, "bias": bias, "residual": residual, "out": out}
        raise dispatch.no_tensor(name, named | scales._asdict())
    check_amax(name, amax)
    if amax and out is not None:
        raise dispatch.amax_with_out(name)
    if transforms_active():
        _refuse_mapped(name, {"a": a, "b": b, "c": c, "bias": bias, "residual": residual})
    if epilogue.precision is None and a.dtype is torch.float32:  # the answer is for a GPU
        epilogue = epilogue.with_precision(torch_precision.default())
    tensors = {
        "c": c,
        "bias": bias,
        "residual": residual,
        "out": out,
        "prepared_b": dispatch.fitting(parts, a, b, epilogue.precision),
        **scales._asdict(),
    }
    options = {"amax": bool(amax), "device": device, "kernel": kernel, **epilogue._asdict()}
    try:
        answer = query.ask(name, a, b, **tensors, **options)
    except RuntimeError as error:
        refused = refusal(name, error, epilogue, device=device, kernel=kernel)
        if refused is None:
            raise
        raise refused from None
    return Explanation(answer["text"], answer)
