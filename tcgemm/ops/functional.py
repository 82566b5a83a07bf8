"""The products: torch's names and order, tensors positional, all else keyword-only.

dispatch.py has the steps that follow. The functions differ in their operator and its operands.
tcgemm.typing states the options: `documented` gives each function its signature. Each has two
overloads for type checkers: amax=True returns a pair.
"""

from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor

from tcgemm.ops.dispatch import gemm
from tcgemm.ops.operands import Operand, replaces_torch
from tcgemm.ops.operators import ADDMM, BADDBMM, BMM, LINEAR, MATMUL, MM
from tcgemm.ops.options import documented, parse
from tcgemm.typing import AddOptions, LinearOptions, Options


@overload
def mm(
    a: Tensor, b: Tensor | Operand, *, amax: Literal[False] = ..., **options: Unpack[Options]
) -> Tensor: ...
@overload
def mm(
    a: Tensor, b: Tensor | Operand, *, amax: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...
@documented(Options)
def mm(a: Tensor, b: Tensor | Operand, **options: Any) -> Tensor | tuple[Tensor, Tensor]:
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
    if not options:
        return gemm(mm, MM, a, b)
    return gemm(mm, MM, a, b, None, *parse("mm", options))


@overload
def bmm(
    a: Tensor, b: Tensor, *, amax: Literal[False] = ..., **options: Unpack[Options]
) -> Tensor: ...
@overload
def bmm(
    a: Tensor, b: Tensor, *, amax: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...
@documented(Options)
def bmm(a: Tensor, b: Tensor, **options: Any) -> Tensor | tuple[Tensor, Tensor]:
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
    if not options:
        return gemm(bmm, BMM, a, b)
    return gemm(bmm, BMM, a, b, None, *parse("bmm", options))


@overload
def matmul(
    a: Tensor, b: Tensor | Operand, *, amax: Literal[False] = ..., **options: Unpack[Options]
) -> Tensor: ...
@overload
def matmul(
    a: Tensor, b: Tensor | Operand, *, amax: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...
@documented(Options)
def matmul(a: Tensor, b: Tensor | Operand, **options: Any) -> Tensor | tuple[Tensor, Tensor]:
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
    if not options:
        return gemm(matmul, MATMUL, a, b)
    return gemm(matmul, MATMUL, a, b, None, *parse("matmul", options))


@overload
def addmm(
    c: Tensor,
    a: Tensor,
    b: Tensor | Operand,
    *,
    amax: Literal[False] = ...,
    **options: Unpack[AddOptions],
) -> Tensor: ...
@overload
def addmm(
    c: Tensor, a: Tensor, b: Tensor | Operand, *, amax: Literal[True], **options: Unpack[AddOptions]
) -> tuple[Tensor, Tensor]: ...
@documented(AddOptions)
def addmm(
    c: Tensor, a: Tensor, b: Tensor | Operand, **options: Any
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
    if not options:
        return gemm(addmm, ADDMM, a, b, c)
    return gemm(addmm, ADDMM, a, b, c, *parse("addmm", options))


@overload
def baddbmm(
    c: Tensor, a: Tensor, b: Tensor, *, amax: Literal[False] = ..., **options: Unpack[AddOptions]
) -> Tensor: ...
@overload
def baddbmm(
    c: Tensor, a: Tensor, b: Tensor, *, amax: Literal[True], **options: Unpack[AddOptions]
) -> tuple[Tensor, Tensor]: ...
@documented(AddOptions)
def baddbmm(c: Tensor, a: Tensor, b: Tensor, **options: Any) -> Tensor | tuple[Tensor, Tensor]:
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
    if not options:
        return gemm(baddbmm, BADDBMM, a, b, c)
    return gemm(baddbmm, BADDBMM, a, b, c, *parse("baddbmm", options))


@overload
def linear(
    x: Tensor,
    weight: Tensor | Operand,
    bias: Tensor | None = ...,
    *,
    amax: Literal[False] = ...,
    **options: Unpack[LinearOptions],
) -> Tensor: ...
@overload
def linear(
    x: Tensor,
    weight: Tensor | Operand,
    bias: Tensor | None = ...,
    *,
    amax: Literal[True],
    **options: Unpack[LinearOptions],
) -> tuple[Tensor, Tensor]: ...
@documented(LinearOptions)
def linear(
    x: Tensor, weight: Tensor | Operand, bias: Tensor | None = None, **options: Any
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
    if not options:
        return gemm(linear, LINEAR, x, weight, None, bias)
    options["bias"] = bias
    return gemm(linear, LINEAR, x, weight, None, *parse("linear", options))


# torch's products of operands that are no plain tensors.


@replaces_torch(torch.mm, torch.Tensor.mm)
def _mm(input: Any, mat2: Any, *, out: Tensor | None = None) -> Any:
    return mm(input, mat2, out=out)


@replaces_torch(torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
def _matmul(input: Any, other: Any, *, out: Tensor | None = None) -> Any:
    return matmul(input, other, out=out)


@replaces_torch(torch.mv, torch.Tensor.mv)
def _mv(input: Any, vec: Any, *, out: Tensor | None = None) -> Any:
    if (input.dim(), vec.dim()) != (2, 1):
        raise RuntimeError(
            f"tcgemm.matmul: torch.mv multiplies a matrix with a vector, but the operands have the "
            f"shapes {tuple(input.shape)} and {tuple(vec.shape)}; call torch.matmul."
        )
    return matmul(input, vec, out=out)


@replaces_torch(torch.Tensor.__rmatmul__)
def _rmatmul(input: Any, other: Any) -> Any:
    return matmul(other, input)


@replaces_torch(torch.addmm, torch.Tensor.addmm)
def _addmm(
    input: Any,
    mat1: Any,
    mat2: Any,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Any:
    return addmm(input, mat1, mat2, beta=beta, alpha=alpha, out=out)


@replaces_torch(torch.nn.functional.linear)
def _linear(input: Any, weight: Any, bias: Tensor | None = None) -> Any:
    return linear(input, weight, bias)
