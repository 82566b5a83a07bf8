"""quantize on the CPU against its definition (csrc/core/quantize.h), bit by bit."""

import math

import pytest
import torch

from support import cases
from support.cases import E4M3, F32, FP8, S8
from support.cpu_model import ISAS, LIMIT, assert_same_digest, narrowed, with_threads
from support.reference import same_bits

quantize = torch.ops.tcgemm.quantize

TARGETS = (*FP8, S8)
GRANULARITIES = ("tensor", "row", "1x128", "128x128")
SHAPES = ((1, 1), (3, 128), (5, 129), (130, 300), (257, 127), (2, 1500), (2, 130, 200), (3, 1, 5))
inf, nan = math.inf, math.nan


def limit(dtype):
    return torch.tensor(LIMIT.get(dtype, 127.0))


def extents(granularity, shape):
    """Rows and columns of a group."""
    whole = (math.prod(shape[:-1]), shape[-1])
    table = {"row": (1, shape[-1]), "1x128": (1, 128), "128x128": (128, 128)}
    return table.get(granularity, whole)


def groups(x, granularity):
    """As (.., groups along rows, rows, groups along columns, columns), filled up with zeros."""
    if granularity == "tensor":
        return x.reshape(1, -1, 1, x.shape[-1])
    rows, columns = extents(granularity, x.shape)
    pad = (0, -x.shape[-1] % columns, 0, -x.shape[-2] % rows)
    x = torch.nn.functional.pad(x, pad)
    return x.unflatten(-1, (-1, columns)).unflatten(-3, (-1, rows))


def reference(x, dtype, granularity):
    wide = x.float()
    parts = groups(wide, granularity)
    amax = parts.abs().amax((-3, -1), keepdim=True)
    scale = (amax / limit(dtype)).clamp(min=2.0**-126)
    scale = torch.where(amax == 0, torch.ones(()), scale).where(amax.isfinite(), nan)
    whole = scale.expand(parts.shape).flatten(-4, -3).flatten(-2)
    if granularity == "tensor":
        whole = whole.reshape(x.shape)
    else:
        whole = whole[..., : x.shape[-2], : x.shape[-1]]
    values = (wide / whole).clamp(-limit(dtype), limit(dtype))
    scale = scale.squeeze(-1).squeeze(-2)
    return narrowed(values, dtype), scale.reshape(()) if granularity == "tensor" else scale


def check(x, dtype, granularity):
    values, scale = quantize(x, dtype, granularity)
    expected, expected_scale = reference(x, dtype, granularity)
    assert values.is_contiguous() and scale.is_contiguous()
    assert same_bits(scale, expected_scale)
    assert same_bits(values, expected)


@pytest.mark.parametrize("dtype", TARGETS)
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("source", cases.FLOATS)
def test_scales_and_values_of_every_shape(dtype, granularity, source):
    for shape in SHAPES:
        spread = 2.0 ** torch.randint(-12, 4, (*shape[:-1], 1))
        check((torch.randn(shape) * spread).to(source), dtype, granularity)


@pytest.mark.parametrize("strides", cases.STRIDES)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_strides_change_no_bit(strides, granularity):
    x = cases.make(strides, 140, 150, dtype=F32)
    expected = quantize(x.contiguous(), E4M3, granularity)
    for result, other in zip(quantize(x, E4M3, granularity), expected, strict=True):
        assert same_bits(result, other)
    batch = cases.make("batch_innermost", 3, 5, 140, dtype=F32)
    check(batch, S8, granularity)


@pytest.mark.parametrize("dtype", TARGETS)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_nan_and_inf_make_a_group_nan_and_zeros_have_a_scale_of_one(dtype, granularity):
    x = torch.randn(260, 300)
    x[3, 7], x[3, 200], x[4, 5], x[140, 290] = nan, inf, -inf, -nan
    x[10, :128] = torch.tensor([nan, inf, -inf, -0.0]).repeat(32)
    x[130:, :130] = 0
    x[11] = 0
    check(x, dtype, granularity)
    for bad in (nan, inf, -inf):
        values, scale = quantize(torch.tensor([[bad, 1.0, 2.0, 0.0]]), dtype, granularity)
        assert scale.isnan().all()
        assert values.float().isnan().all() if dtype in FP8 else values.eq(0).all()


@pytest.mark.parametrize("dtype", TARGETS)
@pytest.mark.parametrize("exponent", [-149, -140, -126, -120, 100, 127])
def test_the_ends_of_the_range_of_f32(dtype, exponent):
    """Scales stay normal numbers; a subnormal one would have few bits, and flushes on some GPUs."""
    x = torch.rand(64, 256) * 2.0**exponent
    assert quantize(x, dtype, "row")[1].min() >= 2.0**-126
    for granularity in GRANULARITIES:
        check(x, dtype, granularity)


def test_the_largest_element_becomes_the_limit():
    for dtype in TARGETS:
        x = torch.randn(3000, 8) * 2.0 ** torch.randint(-60, 60, (3000, 1))
        values, _ = quantize(x, dtype, "row")
        assert values.float().abs().amax(1).eq(limit(dtype)).all()


def test_vectors_and_empty_tensors():
    vector = torch.randn(300)
    for granularity, shape in (("tensor", ()), ("row", (1,)), ("1x128", (3,))):
        values, scale = quantize(vector, E4M3, granularity)
        assert values.shape == (300,) and scale.shape == shape
        other = quantize(vector[None], E4M3, granularity)
        assert same_bits(values, other[0][0]) and same_bits(scale.view(-1), other[1].view(-1))
    expected = {"tensor": (), "row": (4, 1), "1x128": (4, 0), "128x128": (1, 0)}
    for granularity, shape in expected.items():
        values, scale = quantize(torch.empty(4, 0), E4M3, granularity)
        assert values.shape == (4, 0) and scale.shape == shape and scale.eq(1).all()
        values, scale = quantize(torch.empty(0, 4), S8, granularity)
        assert values.shape == (0, 4)


def all_results():
    """The same in every process."""
    torch.manual_seed(7)
    words = torch.randint(-(2**31), 2**31, (300, 400), dtype=torch.int32).view(F32)
    for x in (torch.randn(257, 300), words, words.mT, words.half(), words.bfloat16()[:, ::3]):
        for dtype in TARGETS:
            for granularity in GRANULARITIES:
                yield from quantize(x, dtype, granularity)


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_gives_the_same_bits(isa):
    assert_same_digest(isa, __file__, all_results())


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_every_number_of_threads_gives_the_same_bits(granularity):
    x = torch.randn(700, 1100)
    first, *others = with_threads(lambda: quantize(x, E4M3, granularity))
    for values, scale in others:
        assert same_bits(values, first[0]) and same_bits(scale, first[1])
