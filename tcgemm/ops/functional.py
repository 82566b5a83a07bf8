"""The products: torch's names and order, tensors positional, all else keyword-only.

dispatch.py has the steps that follow. The functions differ in their operator and its operands. Each
has two overloads for type checkers: amax=True returns a pair.
"""

from typing import TYPE_CHECKING, Literal, Unpack, overload

import torch
from torch import Tensor

from tcgemm.ops import dispatch
from tcgemm.ops.documentation import documented
from tcgemm.ops.epilogue import Scales, epilogue_of
from tcgemm.ops.operators import ADDMM, BADDBMM, BMM, LINEAR, MATMUL, MM
from tcgemm.ops.prepared import Prepared
from tcgemm.typing import Activation, LinearOptions, Options, Precision

if TYPE_CHECKING:
    from tcgemm.packed.weight import PackedWeight


@overload
def mm(
    a: Tensor,
    b: "Tensor | Prepared | PackedWeight",
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
    amax: Literal[False] = False,
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def mm(
    a: Tensor,
    b: "Tensor | Prepared | PackedWeight",
    *,
    amax: Literal[True],
    **options: Unpack[Options],
) -> tuple[Tensor, Tensor]: ...
@documented
def mm(
    a: Tensor,
    b: "Tensor | Prepared | PackedWeight",
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
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Multiplies two matrices and applies an epilogue: act(a (M, K) @ b (K, N) + bias) + residual.

    Example:
        >>> a, w = torch.randn(64, 32).bfloat16(), torch.randn(48, 32).bfloat16()
        >>> tcgemm.mm(a, w.t(), bias=torch.zeros(48), activation="gelu").shape
        torch.Size([64, 48])

    Arguments:
        a (Tensor): (M, K).
        b (Tensor): (K, N), or the .t() of a tcgemm.Prepared or tcgemm.PackedWeight.
        bias (Tensor): (N,), (1, N) or (M, 1).

    Returns:
        A tensor (M, N); with amax=True the pair (out, amax).

    tcgemm.typing.Options describes the other arguments, the dtypes, the gradients and the errors.
    """
    epilogue = epilogue_of(activation, alpha, 1.0, out_dtype, acc_dtype, precision, batch_invariant)
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(mm, MM, out, a, b, None, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(mm, MM, out, a, b, None, bias, residual, epilogue, scales, amax)


@overload
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
    amax: Literal[False] = False,
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def bmm(
    a: Tensor,
    b: Tensor,
    *,
    amax: Literal[True],
    **options: Unpack[Options],
) -> tuple[Tensor, Tensor]: ...
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
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Multiplies equal batches of matrices: act(a (B, M, K) @ b (B, K, N) + bias) + residual.

    Example:
        >>> tcgemm.bmm(torch.randn(8, 16, 32), torch.randn(8, 32, 24)).shape
        torch.Size([8, 16, 24])

    Arguments:
        a (Tensor): (B, M, K).
        b (Tensor): (B, K, N).
        bias (Tensor): (N,), (1, N), (M, 1), or one for each product: (B, 1, N), (B, M, 1).

    Returns:
        A tensor (B, M, N); with amax=True the pair (out, amax).

    tcgemm.typing.Options describes the other arguments, the dtypes, the gradients and the errors.
    """
    epilogue = epilogue_of(activation, alpha, 1.0, out_dtype, acc_dtype, precision, batch_invariant)
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(bmm, BMM, out, a, b, None, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(bmm, BMM, out, a, b, None, bias, residual, epilogue, scales, amax)


@overload
def matmul(
    a: Tensor,
    b: "Tensor | Prepared | PackedWeight",
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
    amax: Literal[False] = False,
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def matmul(
    a: Tensor,
    b: "Tensor | Prepared | PackedWeight",
    *,
    amax: Literal[True],
    **options: Unpack[Options],
) -> tuple[Tensor, Tensor]: ...
@documented
def matmul(
    a: Tensor,
    b: "Tensor | Prepared | PackedWeight",
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
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Multiplies with the shapes of torch.matmul, whose batch dimensions broadcast, and applies an
    epilogue: act(a (..., M, K) @ b (..., K, N) + bias) + residual.

    Example:
        >>> tcgemm.matmul(torch.randn(5, 1, 16, 32), torch.randn(3, 32, 24)).shape
        torch.Size([5, 3, 16, 24])

    Arguments:
        a (Tensor): (..., M, K), or (K,): one row, and the result has no dimension for it.
        b (Tensor): (..., K, N), or (K,): one column, and the result has no dimension for it. Or
            the .t() of a tcgemm.Prepared or tcgemm.PackedWeight.
        bias (Tensor): (N,), (1, N) or (M, 1). It may have batch dimensions in front.

    Returns:
        A tensor (..., M, N); with amax=True the pair (out, amax).

    tcgemm.typing.Options describes the other arguments, the dtypes, the gradients and the errors.
    """
    epilogue = epilogue_of(activation, alpha, 1.0, out_dtype, acc_dtype, precision, batch_invariant)
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
    b: "Tensor | Prepared | PackedWeight",
    *,
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
    amax: Literal[False] = False,
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def addmm(
    c: Tensor,
    a: Tensor,
    b: "Tensor | Prepared | PackedWeight",
    *,
    beta: float = ...,
    amax: Literal[True],
    **options: Unpack[Options],
) -> tuple[Tensor, Tensor]: ...
@documented
def addmm(
    c: Tensor,
    a: Tensor,
    b: "Tensor | Prepared | PackedWeight",
    *,
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
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Multiplies two matrices and adds c: beta * c + alpha * (a (M, K) @ b (K, N)).

    Example:
        >>> c, a, b = torch.randn(24), torch.randn(16, 32), torch.randn(32, 24)
        >>> tcgemm.addmm(c, a, b, beta=0.5, activation="relu").shape
        torch.Size([16, 24])

    Arguments:
        c (Tensor): broadcasts to (M, N), as in torch.addmm.
        a (Tensor): (M, K).
        b (Tensor): (K, N), or the .t() of a tcgemm.Prepared or tcgemm.PackedWeight.
        beta (float): multiplies c. With beta = 0, c is not read, so a NaN in it does not spread.
        bias (Tensor): (N,), (1, N) or (M, 1).

    Returns:
        A tensor (M, N); with amax=True the pair (out, amax).

    tcgemm.typing.Options describes the other arguments, the dtypes, the gradients and the errors.
    """
    epilogue = epilogue_of(
        activation, alpha, beta, out_dtype, acc_dtype, precision, batch_invariant
    )
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
    amax: Literal[False] = False,
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
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
@documented
def baddbmm(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
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
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Multiplies equal batches of matrices and adds c: beta * c + alpha * (a @ b).

    Example:
        >>> c, a, b = torch.randn(8, 16, 24), torch.randn(8, 16, 32), torch.randn(8, 32, 24)
        >>> tcgemm.baddbmm(c, a, b, beta=0.5).shape
        torch.Size([8, 16, 24])

    Arguments:
        c (Tensor): broadcasts to (B, M, N), as in torch.baddbmm.
        a (Tensor): (B, M, K).
        b (Tensor): (B, K, N).
        beta (float): multiplies c. With beta = 0, c is not read, so a NaN in it does not spread.
        bias (Tensor): (N,), (1, N), (M, 1), or one for each product: (B, 1, N), (B, M, 1).

    Returns:
        A tensor (B, M, N); with amax=True the pair (out, amax).

    tcgemm.typing.Options describes the other arguments, the dtypes, the gradients and the errors.
    """
    epilogue = epilogue_of(
        activation, alpha, beta, out_dtype, acc_dtype, precision, batch_invariant
    )
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(baddbmm, BADDBMM, out, a, b, c, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(
        baddbmm, BADDBMM, out, a, b, c, bias, residual, epilogue, scales, amax
    )


@overload
def linear(
    x: Tensor,
    weight: "Tensor | Prepared | PackedWeight",
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
    amax: Literal[False] = False,
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def linear(
    x: Tensor,
    weight: "Tensor | Prepared | PackedWeight",
    bias: Tensor | None = ...,
    *,
    amax: Literal[True],
    **options: Unpack[LinearOptions],
) -> tuple[Tensor, Tensor]: ...
@documented
def linear(
    x: Tensor,
    weight: "Tensor | Prepared | PackedWeight",
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
    out_dtype: torch.dtype | str | None = None,
    acc_dtype: torch.dtype | str | None = None,
    precision: Precision | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Computes a linear layer: act(x (..., K) @ weight (N, K).t() + bias) + residual.

    Example:
        >>> x, weight = torch.randn(2, 10, 32), torch.randn(48, 32)
        >>> tcgemm.linear(x, weight, torch.zeros(48), activation="silu").shape
        torch.Size([2, 10, 48])
        >>> x8, scale_x = tcgemm.quantize(x, torch.float8_e4m3fn, "row")
        >>> w8, scale_w = tcgemm.quantize(weight, torch.float8_e4m3fn, "row")
        >>> tcgemm.linear(x8, w8, scale_a=scale_x, scale_b=scale_w.t()).dtype
        torch.bfloat16

    Arguments:
        x (Tensor): (..., K). It is a of the formula below. A jagged NestedTensor (B, j, K) works
            as well: the result (B, j, N) has its lengths, and residual must have them, too, or be
            a vector.
        weight (Tensor): (N, K), or a tcgemm.Prepared or tcgemm.PackedWeight. weight.t() is b, and
            scale_b and zero_b have the layout of weight.t(): if (w8, scale) is what
            tcgemm.quantize made of the weight, pass w8 and scale_b=scale.t().
        bias (Tensor): (N,).

    Returns:
        A tensor (..., N); with amax=True the pair (out, amax).

    tcgemm.typing.Options describes the other arguments, the dtypes, the gradients and the errors.
    """
    epilogue = epilogue_of(activation, alpha, 1.0, out_dtype, acc_dtype, precision, batch_invariant)
    if scale_a is scale_b is zero_a is zero_b is scale_out is None and not amax:
        return dispatch.gemm(linear, LINEAR, out, x, weight, None, bias, residual, epilogue)
    scales = Scales(scale_a, scale_b, zero_a, zero_b, scale_out)
    return dispatch.scaled_gemm(
        linear, LINEAR, out, x, weight, None, bias, residual, epilogue, scales, amax
    )
