"""Scales of blocks, and torch.nn.functional.scaled_mm, whose scales have a recipe each.

torch 2.11 has no kernel of _scaled_mm_v2 for the CPU, so the function gets tcgemm's kernel without
the dispatcher. The results are compared with float64 products of the dequantised values.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.functional import ScalingType, SwizzleType

import tcgemm
from tcgemm.ops._torch_private import has_kernel
from tcgemm.override.kernels import Kernel
from tcgemm.override.product import NOT_TORCHS, TABLE

from support import reference
from support.cases import BF16, E4M3, E5M2, F16, F32
from support.uses import integers, same

M, N, K = 144, 272, 400
TENSOR, ROW = ScalingType.TensorWise, ScalingType.RowWise
ROW_BLOCKS, BLOCKS = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
RECIPES = (
    *((TENSOR, TENSOR), (ROW, ROW), (ROW_BLOCKS, ROW_BLOCKS)),
    *((ROW_BLOCKS, BLOCKS), (BLOCKS, ROW_BLOCKS)),
)


(ATEN,) = (row for row in TABLE if row.name == "_scaled_mm_v2")


@pytest.fixture(autouse=True)
def with_a_kernel(monkeypatch):
    by_torch = Kernel(ATEN, "CPU", lambda *_arguments, **_options: "by torch")
    monkeypatch.setattr(torch, "_scaled_mm_v2", by_torch.call)


def powers(*shape):
    """Scales that keep the sums exact."""
    return torch.randint(-2, 3, shape).float().exp2()


def ceil_div(x, y):
    return -(-x // y)


def scale(recipe, rows, k):
    """(a scale as torch takes it, the factors of all elements of the rows)"""
    blocks = ceil_div(k, 128)
    if recipe is TENSOR:
        value = powers(1)
        return value, value.expand(rows, k)
    if recipe is ROW:
        value = powers(rows, 1)
        return value, value.expand(rows, k)
    if recipe is ROW_BLOCKS:
        value = powers(blocks, rows).t()
        return value, value.repeat_interleave(128, 1)[:, :k]
    value = powers(ceil_div(rows, 128), 4 * ceil_div(blocks, 4)).t()
    factors = value[:blocks].repeat_interleave(128, 0)[:k].repeat_interleave(128, 1)[:, :rows]
    return value, factors.t()


def operands(recipe_a, recipe_b, m=M, n=N, k=K, dtypes=(E4M3, E4M3)):
    """(the arguments of scaled_mm, the product in float64)"""
    a, b = integers(m, k, dtype=dtypes[0]), integers(n, k, dtype=dtypes[1])
    (scale_a, all_a), (scale_b, all_b) = scale(recipe_a, m, k), scale(recipe_b, n, k)
    exact = (a.double() * all_a) @ (b.double() * all_b).t()
    if recipe_b is ROW:
        scale_b = scale_b.t()
    return (a, b.t(), scale_a, recipe_a, scale_b, recipe_b), exact


def same_by_use(exact, *args, count=1, **options):
    with tcgemm.use() as u:
        result = F.scaled_mm(*args, **options)
    reference.assert_exact(result, exact.to(result.dtype))
    assert u.report().taken == count and u.report().left == 0, u.report()
    return u.report().rows[0]


@pytest.mark.parametrize(("recipe_a", "recipe_b"), RECIPES)
@pytest.mark.parametrize("sizes", [(M, N, K), (16, 32, 128), (16, 32, 640), (128, 128, 16)])
def test_every_recipe(recipe_a, recipe_b, sizes):
    args, exact = operands(recipe_a, recipe_b, *sizes)
    row = same_by_use(exact, *args, output_dtype=F32)
    assert row.function == "_scaled_mm_v2" and row.sizes == (1, *sizes)
    none = SwizzleType.NO_SWIZZLE
    same_by_use(exact, *args, none, none, output_dtype=F32, contraction_dim=(1, 0))


@pytest.mark.parametrize("dtypes", [(E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)])
@pytest.mark.parametrize("out_dtype", [BF16, F16, F32])
def test_dtypes_and_a_bias(dtypes, out_dtype):
    args, exact = operands(ROW, ROW, dtypes=dtypes)
    bias = integers(N, dtype=F16 if out_dtype is F16 else BF16)
    same_by_use(exact + bias, *args, bias=bias, output_dtype=out_dtype)


def test_fast_sums_and_a_column_of_scales():
    args, exact = operands(ROW, ROW)
    *others, scale_b, recipe_b = args
    row = same_by_use(exact, *others, scale_b.t(), recipe_b, output_dtype=F32, use_fast_accum=True)
    assert row.dtype == "e4m3 fast"


@pytest.mark.skipif(
    not has_kernel("aten::_scaled_mm_v2", "CPU"), reason="this torch has no kernel for the CPU"
)
@pytest.mark.parametrize("recipe", [TENSOR, ROW])
def test_torchs_own_result(recipe):
    (a, b, scale_a, _, scale_b, _), exact = operands(recipe, recipe)
    lists = [scale_a], [recipe.value], [], [scale_b], [recipe.value], []
    report = same(torch.ops.aten._scaled_mm_v2.default, a, b, *lists, None, F32)
    assert report.rows[0].function == "_scaled_mm_v2"
    out = torch.empty(M, N)
    with tcgemm.use() as u:
        torch.ops.aten._scaled_mm_v2.out(a, b, *lists, None, F32, out=out)
    reference.assert_exact(out, exact.float())
    assert u.report().taken == 1


def e8m0(rows):
    return torch.ones(rows, 4).to(torch.float8_e8m0fnu)


MX, NV = ScalingType.BlockWise1x32, ScalingType.BlockWise1x16
SWIZZLED = SwizzleType.SWIZZLE_32_4_4
ONE = torch.ones(1)
LEFT = (
    ((e8m0(32), MX, e8m0(48), MX), {}, "tcgemm has no product with scales BlockWise1x32 by Block"),
    (
        ([ONE, ONE], [NV, TENSOR], [ONE, ONE], [NV, TENSOR]),
        {},
        "no product with scales BlockWise1x16 and TensorWise by BlockWise1x16 and TensorWise",
    ),
    ((ONE, TENSOR, torch.ones(1, 48), ROW), {}, "no product with scales TensorWise by RowWise"),
    ((ONE, TENSOR, ONE, TENSOR, SWIZZLED, SWIZZLED), {}, "swizzled scales are torch's alone"),
    ((ONE, TENSOR, ONE, TENSOR), {"output_dtype": None}, "results of 8 bits are torch's"),
    ((ONE, TENSOR, ONE, TENSOR), {"output_dtype": E4M3}, "results of 8 bits are torch's"),
    ((ONE.half(), TENSOR, ONE, TENSOR), {}, "scales of torch.float16 are torch's alone"),
    ((ONE, TENSOR, torch.ones(2), TENSOR), {}, NOT_TORCHS),
    ((torch.ones(32), ROW, torch.ones(48), ROW), {}, NOT_TORCHS),
    ((torch.ones(32, 2), ROW_BLOCKS, torch.ones(2, 48), ROW_BLOCKS), {}, NOT_TORCHS),
    ((torch.ones(32, 2), ROW_BLOCKS, torch.ones(2, 1), BLOCKS), {}, NOT_TORCHS),
    (
        (torch.ones(32, 2), ROW_BLOCKS, torch.ones(4, 1), BLOCKS),
        {"use_fast_accum": True},
        NOT_TORCHS,
    ),
    ((ONE, TENSOR, ONE, TENSOR), {"contraction_dim": (0, 1)}, NOT_TORCHS),
)


@pytest.mark.parametrize(("arguments", "options", "reason"), LEFT)
def test_what_is_left_to_torch(arguments, options, reason):
    a, b = integers(32, 256, dtype=E4M3), integers(48, 256, dtype=E4M3).t()
    with tcgemm.use() as u:
        assert F.scaled_mm(a, b, *arguments, **options) == "by torch"
    (told,) = u.report().reasons
    assert reason in told and u.report().taken == 0


@pytest.mark.parametrize(
    "recipes", [(ROW_BLOCKS, ROW_BLOCKS), (ROW_BLOCKS, BLOCKS), (BLOCKS, ROW_BLOCKS)]
)
def test_blocks_in_scaled_mm(recipes):
    (a, b, scale_a, _, scale_b, _), exact = operands(*recipes)
    blocks = ceil_div(K, 128)
    scale_a = scale_a[:blocks].t() if recipes[0] is BLOCKS else scale_a
    scale_b = scale_b[:blocks] if recipes[1] is BLOCKS else scale_b.t()
    with tcgemm.use() as u:
        result = torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=F32)
        with pytest.raises((RuntimeError, ValueError)):
            torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=F32, use_fast_accum=True)
    reference.assert_exact(result, exact.float())
    assert u.report().taken == 1


def test_a_table_has_rows_of_its_own_for_blocks():
    row = {"dtype": "e4m3", "layout": "TN", "m": M, "n": N, "k": K, "ratios": {"torch": 1.5}}
    blocks = {**row, "epilogue": "128x128-scales", "ratios": {"torch": 0.5}}
    args, _ = operands(ROW_BLOCKS, BLOCKS)
    for rows, reason in (
        ([row], "the table has no row of e4m3 128x128 in layout TN"),
        ([row, blocks], "torch is faster at the nearest size of the table"),
    ):
        with tcgemm.use(table=rows) as u:
            assert F.scaled_mm(*args) == "by torch"
        assert reason in " ".join(u.report().reasons)
    with tcgemm.use(table=[row]) as u:
        F.scaled_mm(*operands(ROW, ROW)[0])
    assert u.report().taken == 1
