"""pack_weight: rounding, the least squared error, and weights that are not finite."""

import math

import pytest
import torch

import tcgemm

from support.cases import DEVICES
from support.packed_weight_cases import CASES, IDS, TABLE, Case, bits

FORMATS = ("int4", "int8", "e4m3", "nf4", "fp4", "mxfp4", "nvfp4", "table")
_NORMAL = torch.distributions.Normal(0.0, 1.0)


def values_of(packed):
    """All values that the codes of one group with the scale 1 can have."""
    if packed.format == "int4":
        return torch.arange(-8.0, 8.0)
    if packed.format == "int8":
        return torch.arange(-128.0, 128.0)
    if packed.format == "e4m3":
        finite = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.float8_e4m3fn)
        return finite.float()[finite.float().isfinite()]
    return packed.table


def float_scales(packed):
    scales = packed.scales.float()
    return scales if packed.global_scale is None else scales * packed.global_scale


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("case", [case for case in CASES if case.zeros == "none"], ids=str)
def test_every_element_is_rounded_to_the_nearest_value(case, dtype):
    w = torch.randn(7, 256).to(dtype)
    packed = case.pack(w)
    size = case.group_size or 256
    scaled = w.float() / float_scales(packed).repeat_interleave(size, 1)
    distance = (scaled.unsqueeze(-1) - values_of(packed)).abs().amin(-1)
    codes = packed.dequantize(torch.float32) / float_scales(packed).repeat_interleave(size, 1)
    assert torch.allclose((scaled - codes).abs(), distance, rtol=0, atol=2e-4)


def test_the_scale_of_a_group_is_its_largest_magnitude_over_the_limit():
    w = torch.tensor([[3.5] + [0.1] * 31 + [-14.0] + [0.2] * 31])
    assert torch.equal(tcgemm.pack_weight(w, "int4", 32).scales, torch.tensor([[0.5, 2.0]]))
    assert torch.equal(tcgemm.pack_weight(w, "nf4", 32).scales, torch.tensor([[3.5, 14.0]]))
    assert torch.equal(tcgemm.pack_weight(w, "fp4", 32).scales, w[:, ::32].abs() / 6)
    assert torch.equal(tcgemm.pack_weight(w, "int8").scales, torch.tensor([[14.0 / 127]]))
    # The powers of two that are not above 3.5 / 4 and 14 / 4.
    assert torch.equal(tcgemm.pack_weight(w, "mxfp4").scales.float(), torch.tensor([[0.5, 2.0]]))


def test_zero_points_use_all_codes_of_a_group():
    w = torch.linspace(-1.0, 14.0, 32).reshape(1, 32)
    packed = tcgemm.pack_weight(w, "int4", 32, zero_points=True)
    assert (packed.scales.item(), packed.zero_points.item()) == (1.0, 1)
    codes = torch.stack([packed.codes & 15, packed.codes >> 4], -1)
    assert (codes.min().item(), codes.max().item()) == (0, 15)
    positive = tcgemm.pack_weight(w.abs() + 1, "int4", 32, zero_points=True)
    assert positive.zero_points.item() == 0


def test_ties_of_e2m1_go_to_the_even_mantissa():
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    even = torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0])
    w = torch.zeros(2, 32)
    w[0, :7], w[1, :7], w[:, 8] = ties, -ties, 6.0
    values = tcgemm.pack_weight(w, "fp4", 32).dequantize()
    assert torch.equal(values[0, :7], even) and torch.equal(values[1, :7], -even)
    assert torch.equal(values, tcgemm.pack_weight(w, "mxfp4").dequantize())


def test_the_nf4_table_has_the_quantiles_of_the_normal_distribution():
    """Dettmers and others: quantiles of both halves, 8 for the positive one, scaled to 1."""
    offset = 0.9677083
    positive = _NORMAL.icdf(torch.linspace(offset, 0.5, 9, dtype=torch.float64)[:-1])
    negative = -_NORMAL.icdf(torch.linspace(offset, 0.5, 8, dtype=torch.float64)[:-1])
    values = torch.cat([positive, negative, torch.zeros(1, dtype=torch.float64)]).sort().values
    table = tcgemm.pack_weight(torch.ones(1, 64), "nf4").table
    assert torch.allclose(table.double(), values / values.max(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", [case for case in CASES if case.zeros != "offsets"], ids=str)
def test_the_least_squared_error_is_not_above_that_of_rounding(case):
    w = torch.randn(9, 256).bfloat16()
    w[0, :4] *= 8
    nearest, least = case.pack(w), case.pack(w, "mse")
    errors = [(x.dequantize(torch.float32) - w.float()).square() for x in (nearest, least)]
    size = case.group_size or 256
    groups = [tensor.unflatten(1, (-1, size)).sum(-1) for tensor in errors]
    assert (groups[1] <= groups[0] * (1 + 1e-6)).all()
    assert groups[1].sum() < groups[0].sum()


def test_the_least_squared_error_of_int4_is_near_the_best_scale():
    w = torch.randn(4, 128)
    packed = tcgemm.pack_weight(w, "int4", 128, method="mse")
    scales = torch.linspace(0.02, 1.0, 2000).reshape(-1, 1, 1)
    best = ((w / scales).round().clamp(-8, 7) * scales - w).square().sum(-1).amin(0)
    error = (packed.dequantize() - w).square().sum(-1)
    assert (error <= 1.05 * best).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["nearest", "mse"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_group_that_is_not_finite_is_nan_and_no_other_changes(case, value, method, device):
    w = torch.randn(4, 256, device=device)
    size = case.group_size or 256
    clean = case.pack(w, method)
    w[1, 3] = value
    packed = case.pack(w, method)
    values, expected = packed.dequantize(), clean.dequantize()
    assert values[1, :size].isnan().all()
    expected[1, :size] = math.nan
    if case.format != "nvfp4":  # its global scale comes from all finite elements
        assert torch.equal(bits(values.nan_to_num(7.0)), bits(expected.nan_to_num(7.0)))
    assert torch.equal(values.isnan(), expected.isnan())
    out = tcgemm.linear(torch.ones(2, 256, device=device).half(), packed)
    assert out[:, 1].isnan().all() and out[:, [0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_zeros_stay_zeros(case):
    w = torch.randn(3, 256).half()
    w[1] = 0
    packed = case.pack(w)
    assert (packed.dequantize()[1] == 0).all()
    assert packed.scales.float().isfinite().all() and (packed.scales.float() > 0).all()


def test_a_scale_that_float16_cannot_hold():
    large = tcgemm.pack_weight(torch.full((1, 32), 1e7), "int4", 32, scale_dtype=torch.float16)
    assert large.dequantize().isnan().all()
    small = torch.full((1, 32), 2.0**-24)
    packed = tcgemm.pack_weight(small, "int4", 32, scale_dtype=torch.float16)
    assert torch.equal(packed.dequantize(torch.float32), small)


@pytest.mark.parametrize("format", FORMATS)
def test_the_largest_and_the_smallest_magnitudes(format):
    case = Case(format, {"mxfp4": 32, "nvfp4": 16}.get(format, 64))
    for size in (1e-30, 1e30):
        w = torch.randn(2, 64) * size
        values = case.pack(w).dequantize()
        assert values.isfinite().all()
        assert (values.double() - w.double()).norm() < 0.3 * w.double().norm()


def test_scales_have_the_dtype_that_is_asked_for():
    w = torch.randn(2, 64).bfloat16()
    assert tcgemm.pack_weight(w, "int4", 32).scales.dtype is torch.bfloat16
    packed = tcgemm.pack_weight(w, "int4", 32, scale_dtype=torch.float32)
    assert (packed.scales.dtype, packed.dtype) == (torch.float32, torch.bfloat16)
    assert tcgemm.pack_weight(w, "mxfp4").scales.dtype is torch.float8_e8m0fnu
    assert tcgemm.pack_weight(w, "nvfp4").scales.dtype is torch.float8_e4m3fn


def test_default_group_sizes():
    w = torch.randn(2, 256)
    sizes = {"int4": 128, "nf4": 64, "fp4": 64, "mxfp4": 32, "nvfp4": 16}
    sizes |= {"int8": None, "e4m3": None}
    for format, size in sizes.items():
        assert tcgemm.pack_weight(w, format).group_size == size
    assert tcgemm.pack_weight(w, "table", table=TABLE).group_size == 64


def test_any_strides_and_a_weight_that_learns():
    w = torch.randn(64, 48).t()
    expected = tcgemm.pack_weight(w.contiguous(), "int4", 32)
    assert torch.equal(tcgemm.pack_weight(w, "int4", 32).codes, expected.codes)
    of_parameter = tcgemm.pack_weight(torch.nn.Parameter(w), "int4", 32)
    assert torch.equal(of_parameter.codes, expected.codes) and not of_parameter.scales.requires_grad


@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (0, 0), (1, 1)])
def test_small_and_empty_weights(shape):
    packed = tcgemm.pack_weight(torch.randn(shape), "int4", None)
    assert packed.shape == shape and packed.dequantize().shape == shape
