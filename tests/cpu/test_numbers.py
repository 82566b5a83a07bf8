"""Numbers on the CPU: every code of a narrow type, every kind of rounding, NaN, Inf, subnormals."""

import math

import pytest
import torch

import tcgemm  # noqa: F401  (registers torch.ops.tcgemm)

from support import cases
from support.cases import BF16, E4M3, E5M2, F16, F32, FP8, S8, S32, U8
from support.cpu_model import TYPES, narrowed, rounded
from support.cpu_operands import TIES, gemm, to, wrapped
from support.reference import same_bits

scaled_mm = torch.ops.tcgemm.scaled_mm
inf, nan = math.inf, math.nan


def codes(dtype):
    """Every bit pattern of a type of 8 or 16 bits."""
    if dtype.itemsize == 1:
        return torch.arange(256, dtype=U8).view(dtype)
    return torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)


@pytest.mark.parametrize("dtype", (*cases.HALVES, *FP8), ids=cases.NAMES.get)
def test_every_code_is_read_and_written_exactly(dtype):
    x, one = codes(dtype), torch.ones(1, 1).to(dtype)
    # + 0: the chain starts from +0, so -0 becomes +0.
    for out in (F32, dtype):
        expected = to(x.float() + 0, out)
        assert same_bits(scaled_mm(x[:, None], one, out_dtype=out)[:, 0], expected)
        assert same_bits(scaled_mm(one, x[None], out_dtype=out)[0], expected)
        # A step of 2 takes the paths that convert one value at a time.
        assert same_bits(scaled_mm(x[None, ::2].mT, one, out_dtype=out)[:, 0], expected[::2])


@pytest.mark.parametrize("dtype", (*FP8, S8, U8))
@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_codes_reach_their_places_in_every_layout(dtype, layout):
    x = codes(dtype)
    if dtype in FP8:
        x = torch.where(x.float().isfinite(), x.float(), 0).to(dtype)
    stored_a, stored_b = cases.major_strides(layout)
    x = x[torch.randperm(256)].view(16, 16)
    unit = torch.eye(16).to(dtype)
    for a, b in ((x, unit), (unit, x)):
        a = a.mT.contiguous().mT if stored_a == "transposed" else a
        b = b.mT.contiguous().mT if stored_b == "transposed" else b
        assert torch.equal(scaled_mm(a, b, out_dtype=F32), x.float())


def awkward(points):
    """f32 numbers around points and around the middle of two, of both signs; special ones; any."""
    points = points.double().sort().values
    middles = ((points[1:] + points[:-1]) / 2).float()
    near = [middles, points.float()]
    near += [torch.nextafter(x, torch.tensor(side)) for x in near for side in (inf, -inf)]
    special = torch.tensor([0.0, inf, nan, 2.0**-149, 2.0**-126, 3.4e38, 465.0, 61441.0, 127.5])
    words = torch.randint(-(2**31), 2**31, (20_000,), dtype=S32).view(F32)
    ranged = torch.randn(20_000) * 2.0 ** torch.randint(-20, 18, (20_000,))
    x = torch.cat([*near, special, words, ranged])
    return torch.cat([x, -x])


def f32_numbers(out):
    """Any, the ties of `out`, and numbers that are subnormal in it or too large for it."""
    if out in FP8:
        return awkward(codes(out)[:0x7F].float().nan_to_num(0, 0, 0))
    words = torch.randint(-(2**31), 2**31, (200_000,), dtype=S32)
    words[::2] &= ~0xFFF  # ties of f16, and numbers that are in it
    words[1::4] &= ~0x7FFF  # the numbers of bf16
    scale = torch.rand(50_000) * 2.0 ** torch.randint(-26, -12, (50_000,))  # subnormals of f16
    return torch.cat([words.view(F32), scale])


@pytest.mark.parametrize("out", (*cases.FLOATS, *FP8), ids=cases.NAMES.get)
def test_every_rounding_is_to_nearest_even(out):
    """And saturated, to a type of 8 bits."""
    x, one = f32_numbers(out), torch.ones(1, 1)
    expected = to(x + 0, out)
    assert same_bits(scaled_mm(x[:, None], one, out_dtype=out)[:, 0], expected)
    strided = torch.empty(len(x), 3, dtype=out)[:, ::2][:, :1]
    scaled_mm.out(x[:, None], one, out_dtype=out, out=strided)
    assert same_bits(strided[:, 0], expected)


def test_every_rounding_to_s8():
    x = awkward(torch.arange(-130, 131).float())
    one = torch.ones(len(x), 1, dtype=S8)
    result = scaled_mm(one, one[:1], scale_a=x[:, None], out_dtype=S8)
    assert same_bits(result[:, 0], narrowed(x, S8))


def rounded_to(bits, x):
    """f32 to nearest even with this many bits of mantissa, on words."""
    word = x.view(S32).long() & 0xFFFFFFFF
    dropped = 23 - bits
    word = word + (1 << (dropped - 1)) - 1 + ((word >> dropped) & 1)
    value = wrapped(word >> dropped << dropped).view(F32)
    return torch.where(x.isnan(), nan, value)


@pytest.mark.parametrize("precision, bits", [("high", 10), ("medium", 7), ("highest", 23)])
def test_every_rounding_of_f32_operands(precision, bits):
    words = torch.randint(-(2**31), 2**31, (40_000,), dtype=S32)
    words[::2] &= ~0xFFF  # ties of tf32
    words[1::4] &= ~0x7FFF  # and of bf16
    largest = torch.tensor([3.4028234e38, inf, -inf, nan, 2.0**-149, 2.0**-127, 0.0])
    x = torch.cat([words.view(F32), largest, -largest])
    wide = x.clone() if bits == 23 else rounded_to(bits, x)
    if bits == 7:
        assert same_bits(rounded(wide, F32), rounded(x.to(BF16).float(), F32))
    expected = rounded(wide + 0, F32)
    one = torch.ones(1, 1)
    assert same_bits(scaled_mm(x[:, None], one, precision=precision)[:, 0], expected)
    assert same_bits(scaled_mm(one, x[None], precision=precision)[0], expected)
    one_by_one = scaled_mm(one, x[None, ::2], precision=precision)[0]
    assert same_bits(one_by_one, expected[::2])
    finite = x[wide.isfinite()][: 60 * 60].view(60, 60)
    for stored in (finite, finite.mT.contiguous().mT):
        result = scaled_mm(stored, torch.eye(60), precision=precision)
        assert torch.equal(result, wide[wide.isfinite()][: 60 * 60].view(60, 60))


def test_special_values():
    def one(x, y=1.0, dtype=F32, **options):
        a, b = (torch.tensor([[value]], dtype=dtype) for value in (x, y))
        return gemm(a, b, **options).item()

    assert math.isnan(one(nan)) and math.isnan(one(0.0, inf)) and one(-2.0, inf) == -inf
    for name in cases.ACTIVATIONS:
        assert math.isnan(one(nan, activation=name)), name
        assert one(inf, activation=name) == inf, name
    assert one(60000.0, 2.0, F16) == inf and one(-60000.0, 2.0, F16) == -inf
    assert one(60000.0, 2.0, F16, out_dtype=F32) == 120000
    # The largest f32 number that is still finite in f16 and bf16, and its successor.
    assert one(65519.996, out_dtype=F16) == 65504 and one(65520.0, out_dtype=F16) == inf
    tie = 2.0**127 * (2 - 2.0**-8)
    assert one(tie - 2.0**104, out_dtype=BF16) < inf and one(tie, out_dtype=BF16) == inf
    # The accumulator exceeds f16's range and stays Inf.
    a, b = torch.full((1, 32), 255.0, dtype=F16), torch.full((32, 1), 255.0, dtype=F16)
    a[0, 16:] = -255
    assert gemm(a, b).item() == 0 and gemm(a, b, acc_dtype=F16).item() == inf
    # Subnormal operands and results are not flushed; half of the smallest one rounds to even, 0.
    assert one(2.0**-24, 1.0, F16) == 2.0**-24 and one(2.0**-24, 0.5, F16) == 0
    assert one(2.0**-24, 0.75, F16) == 2.0**-24
    assert one(2.0**-149) == 2.0**-149 and one(2.0**-133, 1.0, BF16) == 2.0**-133
    # One step from a tie between two f32 numbers, a step that not even f64 resolves.
    for factors, down, up in TIES:
        for side, expected in ((-1, down), (1, up)):
            a = torch.tensor([[side * 2.0**-60, factors[0]]])
            b = torch.tensor([[1.0], [factors[1] * 2.0**-24]])
            assert gemm(a, b).item() == gemm(-a, b).mul(-1).item() == expected
    # An f32 product that is subnormal is rounded once, with the sum.
    x = torch.tensor([[2.0**-149, 2.0**-75]])
    assert gemm(x, torch.tensor([[1.0], [1.5 * 2.0**-74]])).item() == 2 * 2.0**-149


def test_nan_has_one_bit_pattern():
    for types in TYPES:
        a = torch.tensor([[-math.nan], [math.inf], [-math.inf]], dtype=types.input)
        result = gemm(a, torch.zeros(1, 1, dtype=types.input), types=types)
        assert same_bits(result, torch.full((3, 1), math.nan, dtype=types.out)), types


def test_nan_and_inf():
    def one(x, y=1.0, dtype=E5M2, **options):
        a, b = (torch.tensor([[value]]).to(dtype) for value in (x, y))
        return scaled_mm(a, b, **({"out_dtype": F32} | options)).item()

    assert math.isnan(one(nan)) and math.isnan(one(0.0, inf)) and one(-2.0, inf) == -inf
    assert math.isnan(one(nan, dtype=E4M3)) and math.isnan(one(nan, out_dtype=E4M3))
    assert one(inf, out_dtype=E5M2) == 57344 and one(-inf, out_dtype=E4M3) == -448
    assert one(300.0, 300.0, F16, out_dtype=E4M3) == 448
    for precision in ("high", "medium"):
        assert math.isnan(one(nan, 1.0, F32, precision=precision))
        assert one(-inf, 1.0, F32, precision=precision) == -inf
        assert one(3.4028234e38, 1.0, F32, precision=precision) == inf
    x = torch.tensor([[nan], [inf], [-inf]])
    ones = torch.ones(3, 1, dtype=S8)
    assert scaled_mm(ones, ones[:1], x, out_dtype=S8)[:, 0].tolist() == [0, 127, -128]
    wide = scaled_mm(ones, ones[:1], x, out_dtype=F32)
    assert same_bits(wide, x.abs() * torch.tensor([[1.0], [1.0], [-1.0]]))
