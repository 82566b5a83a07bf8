"""Error bounds that can fail, the wide operands they are computed from, and exactness."""

import math

import pytest
import torch

import tcgemm
from tcgemm.emulate.rounding import round_to_tf32
from tcgemm.measure import errors, operands
from tcgemm.ops.activations import activate

from support import split_terms
from support.cases import ACTIVATIONS, E4M3


def right_product(dtype=torch.float32, m=96, n=40, k=128, layout="TN"):
    data = operands.Operands.build(layout, m, n, k, dtype=dtype, device="cpu", sets=1)
    data.normal(torch.Generator().manual_seed(1)).poison()
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    data.out[0].copy_(torch.mm(data.a[0].to(wide), data.b[0].to(wide)))
    return data.a[0], data.b[0], data.out[0]


def ratio_of(out, a, b, **options):
    kind = "f64" if a.dtype == torch.float64 else "f32"
    return errors.error_ratio(out, a, b, **{"accumulation": kind, **options})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_right_results_are_within_the_bound(dtype):
    a, b, out = right_product(dtype)
    assert 0 < ratio_of(out, a, b) < 1
    if dtype in (torch.float32, torch.float64):
        assert ratio_of(out, a, b) < 0.21


def zero_tile(a, b, out):
    out[16:32, 8:16] = 0


def dropped_step(a, b, out):
    out.copy_(torch.mm(a[:, 16:].float(), b[16:].float()))


def swapped_rows(a, b, out):
    out[[0, 1]] = out[[1, 0]]


def unwritten(a, b, out):
    out[-1, -1] = math.nan


@pytest.mark.parametrize("fault", [zero_tile, dropped_step, swapped_rows, unwritten])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_fault_is_outside_the_bound(fault, dtype):
    a, b, out = right_product(dtype)
    fault(a, b, out)
    assert not ratio_of(out, a, b) <= 1


def test_a_budget_samples_rows_evenly():
    assert len(errors.sample_rows(10_000, 10.0, 1.0)) == 1000
    rows = errors.sample_rows(4096, 1e9, 1.0)
    assert len(rows) == 256 and rows[0] == 0 and rows[-1] == 4095
    assert int(rows.diff().max()) < 64  # no tile of 64 rows is skipped
    a, b, out = right_product(m=4096)
    out[1024:1088] = 0
    assert ratio_of(out, a, b, budget=1.0) > 1


@pytest.mark.parametrize("activation", (None, *ACTIVATIONS))
def test_the_bound_follows_the_epilogue(activation):
    a, b, out = right_product()
    bias, residual = torch.randn(40), torch.randn(96, 40)
    fused = activate(out + bias, activation) + residual
    options = {"bias": bias, "activation": activation, "residual": residual}
    assert ratio_of(fused, a, b, **options) < 1
    fused[3, 3] += 0.01
    assert ratio_of(fused, a, b, **options) > 1


def test_exactness_is_bitwise():
    data = operands.Operands.build("NN", 40, 24, 512, dtype=torch.bfloat16, device="cpu", sets=1)
    a, b, out = data.integers().a[0], data.b[0], data.out[0]
    out.copy_(torch.mm(a.float(), b.float()))
    assert errors.is_exact(out, a, b)
    out[0, 0] = torch.nextafter(out[0, 0].float(), torch.tensor(math.inf)) + 1
    assert not errors.is_exact(out, a, b)


@pytest.mark.parametrize("shape", [(300, 260), (128, 128), (1, 4), (130, 500)])
@pytest.mark.parametrize("granularity", ["tensor", "row", "1x128", "128x128"])
def test_wide_is_dequantize(shape, granularity):
    values, scale = tcgemm.quantize(torch.randn(shape), E4M3, granularity)
    wide = errors.apply_scale(values, scale)
    expected = tcgemm.dequantize(values, scale)
    torch.testing.assert_close(wide, expected.double(), rtol=2**-23, atol=0)


def test_tf32_is_what_the_products_round_to():
    x, unit = torch.randn(40, 30), torch.eye(30)
    assert torch.equal(tcgemm.mm(x, unit, precision="high"), round_to_tf32(x))


def test_growth_of_float8_sums(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    fast, promoted, exact, single = (
        errors.accumulation_error("cuda", kind, 4096) for kind in ("fast", "promoted", "s32", "f32")
    )
    assert fast > 10 * promoted > 100 * single > exact == 0
    assert errors.accumulation_error("cpu", "fast", 4096) == errors.accumulation_error(
        "cpu", "f32", 4096
    )
    assert errors.accumulation_error("cuda", "f32", 4096, dtype="tf32") > 1.9 * single


def test_int8_with_scales_has_a_bound():
    data = operands.Operands.build("TN", 48, 40, 200, dtype=torch.int8, device="cpu", sets=1)
    a, b = data.normal().a[0], data.b[0]
    scales = torch.rand(48, 1) + 0.5, torch.rand(1, 40) + 0.5
    wide = errors.apply_scale(a, scales[0]), errors.apply_scale(b, scales[1])
    for out_dtype in (torch.float32, torch.bfloat16):
        out = tcgemm.mm(a, b, scale_a=scales[0], scale_b=scales[1], out_dtype=out_dtype)
        assert 0 < errors.error_ratio(out, *wide, accumulation="s32") <= 1
        out[1] *= 1.02
        assert errors.error_ratio(out, *wide, accumulation="s32") > 1


def split_ratio(way, without=None, k=512):
    data = operands.Operands.build("TN", 64, 48, k, dtype=torch.float32, device="cpu", sets=1)
    (data.normal if way == "f16" else data.spread)(torch.Generator().manual_seed(1))
    a, b = data.a[0], data.b[0]
    out = split_terms.product(a, b, way, without)
    return errors.error_ratio(out, a, b, accumulation="f32", dtype="f32")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_bound_sees_a_part_left_out(monkeypatch, device):
    """By the bound of either device, on the CPU."""
    limit = errors.f32_tolerance
    monkeypatch.setattr(errors, "f32_tolerance", lambda _, k: limit(device, k))
    for way in split_terms.KINDS:
        assert 0 < split_ratio(way) < 0.3
    products = split_terms.KINDS["f16"][-1]
    assert all(split_ratio("f16", index) > 1 for index in range(len(products)))
    # The smallest three of bf16 are worth less than roundings; the table of errors sees them.
    assert all(split_ratio("bf16", index) > 1 for index in range(3, 6))
