"""torch's matrix products in one form: what each aten function multiplies, and what it adds.

A bind_* function takes the arguments of one aten function, as the dispatcher gives them, and
returns a Product, or the sentence why tcgemm does not take such a call. Operands that torch refuses
are left to torch, so that its errors stay as they are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tcgemm import dtypes

_FLOATS = frozenset(dtypes.DIFFERENTIABLE)
_FP8 = frozenset(dtypes.FP8)
_SCALED_OUTPUTS = frozenset((torch.bfloat16, torch.float16, torch.float32))
_f32 = torch.float32

NOT_TORCHS = "torch does not multiply such operands either"
EMPTY = "the result or the sum is empty"
IN_PLACE = "the function writes into one of its addends, which tcgemm does not"


class Product(NamedTuple):
    """alpha * scale_a * scale_b * (a @ b) + beta * c + bias, then the activation, then residual."""

    function: str
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    alpha: float = 1.0
    beta: float = 1.0
    activation: str | None = None
    out_dtype: torch.dtype | None = None
    scale_a: torch.Tensor | None = None
    scale_b: torch.Tensor | None = None
    precision: str | None = None

    def sizes(self) -> tuple[int, int, int, int]:
        """(batch, m, n, k)"""
        *batch, m, k = self.a.shape
        return batch[0] if batch else 1, m, self.b.shape[-1], k

    def layout(self) -> str:
        """TN, NN, TT or NT: the first letter is for b, T is a transposed row-major matrix."""
        return "".join(
            "T" if tensor.stride(-2) == 1 and tensor.stride(-1) != 1 else "N"
            for tensor in (self.b, self.a)
        )


def multiplies(a: torch.Tensor, b: torch.Tensor, dims: int) -> str | None:
    """Why tcgemm does not take a product of these two, or None."""
    if a.dtype not in _FLOATS:
        return f"tcgemm has no product of {a.dtype} in this function"
    if b.dtype is not a.dtype or a.dim() != dims or b.dim() != dims:
        return NOT_TORCHS
    return _shapes(a.shape, b.shape)


def _shapes(a: torch.Size, b: torch.Size) -> str | None:
    if a[-1] != b[-2] or a[:-2] != b[:-2]:
        return NOT_TORCHS
    if 0 in a or 0 in b:
        return EMPTY
    return None


def _broadcasts(c: torch.Tensor, product: Product) -> bool:
    """Does c have the dtype and a shape that torch's addmm and baddbmm take?"""
    a, b = product.a, product.b
    shape = (*a.shape[:-1], b.shape[-1])
    sizes = c.shape
    if c.dtype is not a.dtype and c.dtype is not product.out_dtype:
        return False
    return len(sizes) <= len(shape) and all(
        have in (1, want) for have, want in zip(reversed(sizes), reversed(shape), strict=False)
    )


def _add(
    function: str,
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    dims: int,
    alpha: complex,
    beta: complex,
    out_dtype: torch.dtype | None = None,
    activation: str | None = None,
) -> Product | str:
    """addmm and baddbmm. A c that is one row is a bias, which has the faster epilogue."""
    why = multiplies(a, b, dims)
    if why is not None:
        return why
    if isinstance(alpha, complex) or isinstance(beta, complex):
        return NOT_TORCHS
    if alpha == 0:
        return "alpha is 0, so torch does not read the operands"
    product = Product(function, a, b, None, None, None, float(alpha), 1.0, activation, out_dtype)
    if not _broadcasts(c, product):
        return NOT_TORCHS
    if beta == 1 and c.dim() == 1 and c.shape[0] == b.shape[-1]:
        return product._replace(bias=c)
    return product._replace(c=c, beta=float(beta))


def bind_mm(a: torch.Tensor, b: torch.Tensor) -> Product | str:
    """mm."""
    return multiplies(a, b, 2) or Product("mm", a, b)


def bind_mm_dtype(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype) -> Product | str:
    """mm whose result has another dtype."""
    return multiplies(a, b, 2) or _wider(Product("mm", a, b, out_dtype=out_dtype))


def bind_bmm(a: torch.Tensor, b: torch.Tensor) -> Product | str:
    """bmm."""
    return multiplies(a, b, 3) or Product("bmm", a, b)


def bind_bmm_dtype(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype) -> Product | str:
    """bmm whose result has another dtype."""
    return multiplies(a, b, 3) or _wider(Product("bmm", a, b, out_dtype=out_dtype))


def _wider(product: Product | str) -> Product | str:
    """torch takes the operands' dtype, and float32 for operands of 16 bits, as out_dtype."""
    if isinstance(product, str) or product.out_dtype in (product.a.dtype, _f32):
        return product
    return NOT_TORCHS


def bind_addmm(
    c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: complex = 1, alpha: complex = 1
) -> Product | str:
    """addmm."""
    return _add("addmm", c, a, b, 2, alpha, beta)


def bind_addmm_dtype(
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    beta: complex = 1,
    alpha: complex = 1,
) -> Product | str:
    """addmm whose result has another dtype."""
    return _wider(_add("addmm", c, a, b, 2, alpha, beta, out_dtype))


def bind_baddbmm(
    c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: complex = 1, alpha: complex = 1
) -> Product | str:
    """baddbmm."""
    return _add("baddbmm", c, a, b, 3, alpha, beta)


def bind_baddbmm_dtype(
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    beta: complex = 1,
    alpha: complex = 1,
) -> Product | str:
    """baddbmm whose result has another dtype."""
    return _wider(_add("baddbmm", c, a, b, 3, alpha, beta, out_dtype))


def bind_in_place(*_arguments: Any, **_options: Any) -> str:
    """addmm_ and baddbmm_."""
    return IN_PLACE


def bind_addmm_activation(
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    use_gelu: bool = False,
) -> Product | str:
    """_addmm_activation. Its gelu is the approximation by tanh on CUDA, and exact on the CPU."""
    gelu = "gelu_tanh" if a.is_cuda else "gelu"
    activation = gelu if use_gelu else "relu"
    return _add("_addmm_activation", c, a, b, 2, alpha, beta, activation=activation)


def bind_int_mm(a: torch.Tensor, b: torch.Tensor) -> Product | str:
    """_int_mm."""
    if a.dtype is not torch.int8 or b.dtype is not torch.int8 or a.dim() != 2 or b.dim() != 2:
        return NOT_TORCHS
    return _shapes(a.shape, b.shape) or Product("_int_mm", a, b)


def bind_scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Product | str:
    """_scaled_mm."""
    if a.dtype not in _FP8 or b.dtype not in _FP8:
        return f"tcgemm has no product of {a.dtype} and {b.dtype} in this function"
    if a.dim() != 2 or b.dim() != 2:
        return NOT_TORCHS
    why = _shapes(a.shape, b.shape)
    if why is not None:
        return why
    if out_dtype not in _SCALED_OUTPUTS or scale_result is not None:
        return "results of 8 bits are torch's: the formats saturate in other ways"
    if scale_a.dtype is not _f32 or scale_b.dtype is not _f32:
        return f"scales of {scale_a.dtype} are torch's alone"
    rows = scale_a.shape == (a.shape[0], 1) and scale_b.shape == (1, b.shape[1])
    if not rows and (scale_a.numel() != 1 or scale_b.numel() != 1):
        return "scales of blocks are left to torch"
    if bias is not None and bias.shape != (b.shape[1],):
        return NOT_TORCHS
    return Product(
        "_scaled_mm",
        a,
        b,
        bias=bias,
        out_dtype=out_dtype,
        scale_a=scale_a,
        scale_b=scale_b,
        precision="fast" if use_fast_accum else "promoted",
    )


def left_to_torch(name: str) -> Callable[..., str]:
    """The bind function of an aten function that tcgemm has no kernel for; its calls count."""

    def bind(*_arguments: Any, **_options: Any) -> str:
        return f"tcgemm has no kernel for {name}"

    return bind
