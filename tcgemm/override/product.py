"""torch's matrix products in one form: what each aten function multiplies, and what it adds.

The rows of the tables below bind the arguments of one aten function, as the dispatcher gives them,
to a Product, or to the sentence why tcgemm does not take such a call. Operands that torch refuses
are left to torch, so that its errors stay as they are.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.functional import ScalingType

from tcgemm import dtypes
from tcgemm.ops.epilogue import DEFAULT, Epilogue
from tcgemm.ops.operators import ADDMM, BADDBMM, BMM, MM, Operator

_FLOATS = frozenset(dtypes.DIFFERENTIABLE)
_FP8 = frozenset(dtypes.FP8)
_SCALED_OUTPUTS = frozenset((torch.bfloat16, torch.float16, torch.float32))
_f32 = torch.float32

NOT_TORCHS = "torch does not multiply such operands either"
EMPTY = "the result or the sum is empty"
EIGHT_BITS = "results of 8 bits are torch's: the formats saturate in other ways"
IN_PLACE = "the function writes into one of its addends, which tcgemm does not"


class Product(NamedTuple):
    """act(alpha * scale_a * scale_b * (a @ b) + beta * c + bias) + residual"""

    function: str
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    epilogue: Epilogue = DEFAULT
    scale_a: torch.Tensor | None = None
    scale_b: torch.Tensor | None = None
    blocks: str | None = None  # "128x128" or "1x128", if the scales are of blocks
    offs: torch.Tensor | None = None  # the ends of groups of rows, columns or k

    def sizes(self) -> tuple[int, int, int, int]:
        """(batch, m, n, k). The sizes of all groups together count as one product."""
        *batch, m, k = self.a.shape
        has_batch = batch and self.offs is None
        return batch[0] if has_batch else 1, m, self.b.shape[-1], k

    def layout(self) -> str:
        """TN, NN, TT or NT: the first letter is for b, T is a transposed row-major matrix."""
        return "".join(
            "T" if tensor.stride(-2) == 1 and tensor.stride(-1) != 1 else "N"
            for tensor in (self.b, self.a)
        )


def multiplies(
    a: torch.Tensor, b: torch.Tensor, dims: int, out_dtype: torch.dtype | None = None
) -> str | None:
    """Why tcgemm does not take a product of these two, or None. torch takes the operands' dtype,
    and float32 for operands of 16 bits, as out_dtype."""
    if a.dtype not in _FLOATS:
        return f"tcgemm has no product of {a.dtype} in this function"
    if b.dtype is not a.dtype or a.dim() != dims or b.dim() != dims:
        return NOT_TORCHS
    if out_dtype not in (None, a.dtype, _f32):
        return NOT_TORCHS
    return _shapes(a.shape, b.shape)


def _shapes(a: torch.Size, b: torch.Size) -> str | None:
    if a[-1] != b[-2] or a[:-2] != b[:-2]:
        return NOT_TORCHS
    if 0 in a or 0 in b:
        return EMPTY
    return None


def _is_addend(c, dtype, a, b):
    """Does c have a dtype and a shape that torch's addmm and baddbmm take?"""
    if c.dtype is not a.dtype and c.dtype is not dtype:
        return False
    shape = (*a.shape[:-1], b.shape[-1])
    return c.dim() <= len(shape) and all(
        have in (1, want) for have, want in zip(reversed(c.shape), reversed(shape), strict=False)
    )


def _product(function, dims, a, b, out_dtype=None):
    """mm and bmm."""
    epilogue = DEFAULT if out_dtype is None else Epilogue(out_dtype=out_dtype)
    return multiplies(a, b, dims, out_dtype) or Product(function, a, b, epilogue=epilogue)


def _sum(function, dims, c, a, b, out_dtype=None, *, beta=1, alpha=1, use_gelu=None):
    """addmm, baddbmm and _addmm_activation, whose gelu is the approximation by tanh on CUDA, and
    exact on the CPU. A c that is one row is a bias, which has the faster epilogue."""
    why = multiplies(a, b, dims, out_dtype)
    if why is not None:
        return why
    if isinstance(alpha, complex) or isinstance(beta, complex):
        return NOT_TORCHS
    if alpha == 0:
        return "alpha is 0, so torch does not read the operands"
    if not _is_addend(c, out_dtype, a, b):
        return NOT_TORCHS
    activation = None
    if use_gelu is not None:
        gelu = "gelu_tanh" if a.is_cuda else "gelu"
        activation = gelu if use_gelu else "relu"
    is_bias = beta == 1 and c.dim() == 1 and c.shape[0] == b.shape[-1]
    addends = (None, c) if is_bias else (c, None)
    epilogue = Epilogue(activation, float(alpha), float(beta), out_dtype)
    return Product(function, a, b, *addends, None, epilogue)


def _int_mm(a, b):
    if a.dtype is not torch.int8 or b.dtype is not torch.int8 or a.dim() != 2 or b.dim() != 2:
        return NOT_TORCHS
    return _shapes(a.shape, b.shape) or Product("_int_mm", a, b)


def _why_not_scaled(a, b, scales, bias, out_dtype):
    """Why tcgemm does not take a product with these scales, or None. Their shapes come later."""
    if a.dtype not in _FP8 or b.dtype not in _FP8:
        return f"tcgemm has no product of {a.dtype} and {b.dtype} in this function"
    if a.dim() != 2 or b.dim() != 2:
        return NOT_TORCHS
    why = _shapes(a.shape, b.shape)
    if why is not None:
        return why
    if out_dtype not in _SCALED_OUTPUTS:
        return EIGHT_BITS
    for scale in scales:
        if scale.dtype is not _f32:
            return f"scales of {scale.dtype} are torch's alone"
    if bias is not None and bias.shape != (b.shape[1],):
        return NOT_TORCHS
    return None


def _scaled(function, a, b, scale_a, scale_b, blocks, bias, out_dtype, fast):
    if blocks and fast:
        return NOT_TORCHS
    epilogue = Epilogue(out_dtype=out_dtype, precision="fast" if fast else "promoted")
    return Product(function, a, b, None, bias, None, epilogue, scale_a, scale_b, blocks)


def _blocks(size):
    return -(-size // 128)


def _scaled_mm(
    a, b, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False
):
    why = _why_not_scaled(a, b, (scale_a, scale_b), bias, out_dtype)
    if why is not None:
        return why
    if scale_result is not None:
        return EIGHT_BITS
    (m, k), n = a.shape, b.shape[1]
    shapes = scale_a.shape, scale_b.shape
    blocks = None
    if shapes != ((m, 1), (1, n)) and (scale_a.numel() != 1 or scale_b.numel() != 1):
        blocks = {
            ((m, _blocks(k)), (_blocks(k), n)): "1x128",
            ((m, _blocks(k)), (_blocks(k), _blocks(n))): "128x128",
            ((_blocks(m), _blocks(k)), (_blocks(k), n)): "128x128",
        }.get(shapes)
        if blocks is None:
            return NOT_TORCHS
    return _scaled("_scaled_mm", a, b, scale_a, scale_b, blocks, bias, out_dtype, use_fast_accum)


_TENSOR, _ROW = ScalingType.TensorWise.value, ScalingType.RowWise.value
_BLOCKS_1D, _BLOCKS_2D = ScalingType.BlockWise1x128.value, ScalingType.BlockWise128x128.value
_RECIPES = {  # of a and of b -> Product.blocks
    (_TENSOR, _TENSOR): None,
    (_ROW, _ROW): None,
    (_BLOCKS_1D, _BLOCKS_1D): "1x128",
    (_BLOCKS_1D, _BLOCKS_2D): "128x128",
    (_BLOCKS_2D, _BLOCKS_1D): "128x128",
}
_RECIPE_NAMES = {recipe.value: name for name, recipe in ScalingType.__members__.items()}
# The dimensions of a and b that are summed; () is the default, which means the same.
_SUMMED = {(), (1, 0), (1, -2), (-1, 0), (-1, -2)}


def _by_recipe(recipe, scale, extent, k):
    """The scale of an operand with `extent` rows of k elements, or None if torch refuses its shape.
    It has the shape that tcgemm takes for a, which is the transpose of that for b."""
    if recipe == _TENSOR:
        return scale.reshape(1, 1) if scale.numel() == 1 else None
    if recipe == _ROW:
        fits = scale.dim() == 2 and scale.numel() == extent
        return scale.reshape(extent, 1) if fits else None
    blocks = _blocks(k)
    if recipe == _BLOCKS_1D:
        return scale if scale.shape == (extent, blocks) else None
    padded = -(-blocks // 4) * 4  # cuBLAS reads the scales along K in groups of four
    return scale[:blocks].t() if scale.shape == (padded, _blocks(extent)) else None


def _scaled_mm_v2(
    a,
    b,
    scale_a,
    recipe_a,
    swizzle_a,
    scale_b,
    recipe_b,
    swizzle_b,
    bias=None,
    out_dtype=None,
    contraction_dim=(),
    use_fast_accum=False,
):
    """The operator of torch.nn.functional.scaled_mm, whose scales are lists with a recipe each."""
    recipes = (*recipe_a, *recipe_b)
    lists = scale_a, recipe_a, scale_b, recipe_b
    if recipes not in _RECIPES or any(len(values) != 1 for values in lists):
        names = (
            " and ".join(_RECIPE_NAMES.get(recipe, str(recipe)) for recipe in side)
            for side in (recipe_a, recipe_b)
        )
        return f"tcgemm has no product with scales {' by '.join(names)}"
    if any((*swizzle_a, *swizzle_b)):
        return "swizzled scales are torch's alone"
    why = _why_not_scaled(a, b, (*scale_a, *scale_b), bias, out_dtype)
    if why is not None:
        return why
    if tuple(contraction_dim) not in _SUMMED:
        return NOT_TORCHS
    (m, k), n = a.shape, b.shape[1]
    first = _by_recipe(recipe_a[0], scale_a[0], m, k)
    second = _by_recipe(recipe_b[0], scale_b[0], n, k)
    if first is None or second is None:
        return NOT_TORCHS
    blocks = _RECIPES[recipes]
    terms = first, second.t(), blocks, bias, out_dtype, use_fast_accum
    return _scaled("_scaled_mm_v2", a, b, *terms)


_GROUPED = frozenset((torch.bfloat16, torch.float16, _f32))


def _has_whole_vectors(x):
    """Has a matrix, or each of a batch, lines of whole 16 bytes? torch asks for them."""
    (rows, cols), (row, col) = x.shape[-2:], x.stride()[-2:]
    if row == 1 and col >= max(1, rows):
        pitch = col
    elif col == 1 and row >= max(1, cols):
        pitch = row
    else:
        return False
    return pitch % (16 // x.element_size()) == 0


def _grouped_mm(a, b, offs=None, bias=None, out_dtype=None):
    """The products of groups of rows, of columns or of k; without offs, those of two batches."""
    dims = a.dim(), b.dim()
    if dims not in ((2, 3), (3, 2), (2, 2), (3, 3)) or (offs is None) is not (dims == (3, 3)):
        return NOT_TORCHS
    if a.dtype not in _GROUPED or b.dtype is not a.dtype or out_dtype not in (None, a.dtype):
        return NOT_TORCHS
    if bias is not None or not (_has_whole_vectors(a) and _has_whole_vectors(b)):
        return NOT_TORCHS
    if offs is not None and (offs.dtype is not torch.int32 or offs.dim() != 1):
        return NOT_TORCHS
    groups = {x.shape[0] for x in (a, b) if x.dim() == 3}
    if offs is not None:
        groups.add(offs.shape[0])
    if len(groups) != 1 or a.shape[-1] != b.shape[-2]:
        return NOT_TORCHS
    if 0 in (a.shape[-2], b.shape[-1]) or (dims in ((2, 2), (3, 3)) and 0 in groups):
        return EMPTY
    return Product("_grouped_mm", a, b, offs=offs)


def _left(reason: str, *_arguments: Any, **_options: Any) -> str:
    """An aten function that tcgemm has no kernel for; its calls count."""
    return reason


class Aten(NamedTuple):
    """An aten function, and how its arguments are a product."""

    name: str
    first: int  # the position of the first operand
    bind: Callable[..., Product | str]
    # For calls without options, which take less host time than those of scaled_mm.
    product: Operator | None = None
    sum: Operator | None = None


_mm = functools.partial(_product, "mm", 2)
_bmm = functools.partial(_product, "bmm", 3)
_addmm = functools.partial(_sum, "addmm", 2)
_baddbmm = functools.partial(_sum, "baddbmm", 3)
_RETURNING = (
    Aten("mm", 0, _mm, MM),
    Aten("bmm", 0, _bmm, BMM),
    Aten("addmm", 1, _addmm, MM, ADDMM),
    Aten("baddbmm", 1, _baddbmm, BMM, BADDBMM),
    Aten("_addmm_activation", 1, functools.partial(_sum, "_addmm_activation", 2, use_gelu=False)),
    Aten("_int_mm", 0, _int_mm, MM),
    Aten("_scaled_mm", 0, _scaled_mm),
    Aten("_scaled_mm_v2", 0, _scaled_mm_v2),
)
_MAY_BE_RENAMED = (  # by a newer torch; all but the first only count
    ("_grouped_mm", _grouped_mm),
    *(
        (name, functools.partial(_left, f"tcgemm has no kernel for {name}"))
        for name in ("_scaled_grouped_mm", "_scaled_grouped_mm_v2", "_scaled_addmm")
    ),
)
TABLE = (
    *_RETURNING,
    *(Aten(f"{name}.out", first, bind) for name, first, bind, *_ in _RETURNING),
    *(Aten(name, 1, functools.partial(_left, IN_PLACE)) for name in ("addmm_", "baddbmm_")),
    Aten("mm.dtype", 0, _mm),
    Aten("bmm.dtype", 0, _bmm),
    Aten("addmm.dtype", 1, _addmm),
    Aten("baddbmm.dtype", 1, _baddbmm),
    *(Aten(name, 0, bind) for name, bind in _MAY_BE_RENAMED if hasattr(torch.ops.aten, name)),
)
