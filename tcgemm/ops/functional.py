"""The public functions: torch's names and order, tensors positional, all else keyword-only.

dispatch.py has the steps that follow. The functions differ in their operator and its operands.
"""

from typing import Literal, Unpack, overload

import torch
from torch import Tensor

from tcgemm.ops import dispatch, query
from tcgemm.ops import precision as torch_precision
from tcgemm.ops._torch_private import transforms_active
from tcgemm.ops.arguments import check_amax, refusal
from tcgemm.ops.documentation import documented
from tcgemm.ops.epilogue import Scales, epilogue_of
from tcgemm.ops.explanation import Explanation
from tcgemm.ops.operators import ADDMM, BADDBMM, BMM, LINEAR, MATMUL, MM
from tcgemm.ops.prepack import Prepared
from tcgemm.typing import Activation, LinearOptions, Options, Precision


@overload
def mm(
    a: Tensor, b: Tensor | Prepared, *, amax: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...
@overload
def mm(
    a: Tensor, b: Tensor | Prepared, *, amax: Literal[False] = ..., **options: Unpack[Options]
) -> Tensor: ...
@documented
def mm(
    a: Tensor,
    b: Tensor | Prepared,
    *,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    alpha: float = 1.0,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    zero_a: Tensor | None = None,
    zero_b: Tensor | None = None,
    scale_out: Tensor | None = None,
    amax: bool = False,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
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


@overload
def bmm(
    a: Tensor, b: Tensor, *, amax: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...
@overload
def bmm(
    a: Tensor, b: Tensor, *, amax: Literal[False] = ..., **options: Unpack[Options]
) -> Tensor: ...
@documented
def bmm(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    alpha: float = 1.0,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    zero_a: Tensor | None = None,
    zero_b: Tensor | None = None,
    scale_out: Tensor | None = None,
    amax: bool = False,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
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


@overload
def matmul(
    a: Tensor, b: Tensor | Prepared, *, amax: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...
@overload
def matmul(
    a: Tensor, b: Tensor | Prepared, *, amax: Literal[False] = ..., **options: Unpack[Options]
) -> Tensor: ...
@documented
def matmul(
    a: Tensor,
    b: Tensor | Prepared,
    *,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    alpha: float = 1.0,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    zero_a: Tensor | None = None,
    zero_b: Tensor | None = None,
    scale_out: Tensor | None = None,
    amax: bool = False,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
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


@overload
def addmm(
    c: Tensor,
    a: Tensor,
    b: Tensor | Prepared,
    *,
    beta: float = ...,
    amax: Literal[True],
    **options: Unpack[Options],
) -> tuple[Tensor, Tensor]: ...
@overload
def addmm(
    c: Tensor,
    a: Tensor,
    b: Tensor | Prepared,
    *,
    beta: float = ...,
    amax: Literal[False] = ...,
    **options: Unpack[Options],
) -> Tensor: ...
@documented
def addmm(
    c: Tensor,
    a: Tensor,
    b: Tensor | Prepared,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    zero_a: Tensor | None = None,
    zero_b: Tensor | None = None,
    scale_out: Tensor | None = None,
    amax: bool = False,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
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


@overload
def baddbmm(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = ...,
    amax: Literal[True],
    **options: Unpack[Options],
) -> tuple[Tensor, Tensor]: ...
@overload
def baddbmm(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = ...,
    amax: Literal[False] = ...,
    **options: Unpack[Options],
) -> Tensor: ...
@documented
def baddbmm(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    zero_a: Tensor | None = None,
    zero_b: Tensor | None = None,
    scale_out: Tensor | None = None,
    amax: bool = False,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
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


@overload
def linear(
    x: Tensor,
    weight: Tensor | Prepared,
    bias: Tensor | None = ...,
    *,
    amax: Literal[True],
    **options: Unpack[LinearOptions],
) -> tuple[Tensor, Tensor]: ...
@overload
def linear(
    x: Tensor,
    weight: Tensor | Prepared,
    bias: Tensor | None = ...,
    *,
    amax: Literal[False] = ...,
    **options: Unpack[LinearOptions],
) -> Tensor: ...
@documented
def linear(
    x: Tensor,
    weight: Tensor | Prepared,
    bias: Tensor | None = None,
    *,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    alpha: float = 1.0,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    zero_a: Tensor | None = None,
    zero_b: Tensor | None = None,
    scale_out: Tensor | None = None,
    amax: bool = False,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
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
    a: Tensor,
    b: Tensor | Prepared,
    *,
    c: Tensor | None = None,
    beta: float = 1.0,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    alpha: float = 1.0,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    zero_a: Tensor | None = None,
    zero_b: Tensor | None = None,
    scale_out: Tensor | None = None,
    amax: bool = False,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
    device: str | None = None,
    kernel: str | None = None,
) -> Explanation:
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
    a: Tensor,
    b: Tensor | Prepared,
    *,
    c: Tensor | None = None,
    beta: float = 1.0,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    alpha: float = 1.0,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    zero_a: Tensor | None = None,
    zero_b: Tensor | None = None,
    scale_out: Tensor | None = None,
    amax: bool = False,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype | None = None,
    precision: Precision | None = None,
    out: Tensor | None = None,
    device: str | None = None,
    kernel: str | None = None,
) -> Explanation:
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
        query.refuse_mapped(name, {"a": a, "b": b, "c": c, "bias": bias, "residual": residual})
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
