"""error_report measures what emulate.mm computes, its bounds hold, and its advice fits."""

import json

import pytest
import torch

import tcgemm
from tcgemm import emulate
from tcgemm.numerics import ErrorReport, error_report
from tcgemm.numerics.data import DISTRIBUTIONS, draw
from tcgemm.numerics.measure import last_places

E4M3 = torch.float8_e4m3fn
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64, E4M3, torch.int8)


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


def test_the_sums_are_those_of_the_emulator():
    """Outside of this mode so few elements have a GEMV kernel, which is the same for both words."""
    with tcgemm.batch_invariant():
        a, b = normal(40, 512, dtype=E4M3), normal(24, 512, dtype=E4M3).t()
        report = error_report(a, b, device="H200")
        assert [way.name for way in report.ways] == ['precision="promoted"', 'precision="fast"']
        for way, word in zip(report.ways, ("promoted", "fast"), strict=True):
            sums = emulate.mm(a, b, precision=word, kernel=way.kernel, before_activation=True)
            exact = a.double() @ b.double()
            units = (sums - exact).abs() / (a.double().abs() @ b.double().abs()) * 2**24
            assert way.largest == pytest.approx(units.max().item(), rel=1e-12)
            assert way.mean == pytest.approx(units.square().mean().sqrt().item(), rel=1e-12)
            result = emulate.mm(a, b, precision=word, kernel=way.kernel)
            assert way.last_place == last_places(result, exact)
        assert report.planned is report.ways[0]
        planned = error_report(a, b, precision="fast").planned
        assert planned.name == 'precision="fast"'


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data", DISTRIBUTIONS)
@pytest.mark.parametrize("k", [8, 300, 4096])
def test_the_bounds_hold(dtype, data, k):
    report = error_report((512, 1024, k), dtype=dtype, data=data, device="H200")
    for way in report.ways:
        if way.largest == float("inf"):  # a float16 sum ends at 65504
            assert (way.name, data, k) == ("acc_dtype=float16", "spread", 4096)
            continue
        assert way.largest <= way.any_data, way
        if data == "normal":
            assert way.largest <= way.normal_data, way


@pytest.mark.parametrize("device", ["A100", "L40S"])
def test_the_bounds_hold_on_other_gpus(device):
    dtypes = [torch.float16] + ([E4M3] if device == "L40S" else [])
    for dtype in dtypes:
        for data in ("normal", "uniform"):
            report = error_report((512, 256, 2048), dtype=dtype, data=data, device=device)
            assert report.facts["gpu"] == device
            for way in report.ways:
                assert 0 < way.largest <= way.any_data, way


def test_positive_data_break_the_bound_for_normal_data():
    """So that bound is no bound for any data, and the table shows it."""
    way = error_report((256, 256, 16384), dtype=E4M3, data="uniform").ways[1]
    assert way.normal_data < way.largest <= way.any_data


def test_fast_sums_of_long_k_are_refused_by_the_advice():
    report = error_report((512, 512, 16384), dtype=E4M3, data="uniform", precision="fast")
    assert report.planned.drift < -0.1
    assert 'choose precision="promoted", which loses' in report.advice
    long = error_report((512, 512, 16384), dtype=E4M3, data="uniform")
    assert 'precision="fast" would lose' in long.advice and long.advice.endswith("keep the plan.")
    assert abs(long.planned.drift) < 1e-3


def test_a_float16_accumulator_that_overflows():
    report = error_report(
        (64, 64, 4096), dtype=torch.float16, data="spread", acc_dtype=torch.float16, seed=1
    )
    assert report.planned.name == "acc_dtype=float16"
    a = torch.full((16, 4096), 8.0).half()
    report = error_report(a, a.t(), acc_dtype=torch.float16)
    assert report.advice.startswith("The planned sums overflow: choose acc_dtype=float32")
    assert "overflow" in str(report)


def test_integers_are_exact_until_they_wrap():
    report = error_report((256, 256, 4096), dtype=torch.int8)
    assert report.planned.largest == 0 and "nothing to choose" in report.advice
    a = torch.full((16, 2**18), 127, dtype=torch.int8)
    assert "leave the range of int32" in error_report(a, a.t()).advice


def test_scales_and_layouts():
    a, b = normal(70, 256, dtype=E4M3), normal(90, 256, dtype=E4M3).t()
    plain = error_report(a, b).planned
    rows = {"scale_a": torch.full((70, 1), 4.0), "scale_b": torch.full((1, 90), 0.5)}
    way = error_report(a, b, **rows).planned
    assert way.kernel == plain.kernel and way.mean == pytest.approx(plain.mean, rel=1e-3)
    blocks = {"scale_a": torch.rand(70, 2) + 0.5, "scale_b": torch.rand(2, 90) + 0.5}
    report = error_report(a, b, **blocks)
    assert len(report.ways) == 1  # scales of blocks are promoted
    assert 0 < report.planned.largest <= report.planned.any_data + 4
    wide = {"scale_a": torch.rand(70, 2) + 0.5, "scale_b": torch.rand(2, 1) + 0.5}
    assert error_report(a, b, **wide).planned.largest < 1e5
    for layout in ("TN", "NN", "TT", "NT"):
        shape = (256, 384, 512)
        assert layout.lower() in error_report(shape, layout=layout).planned.kernel
    square = normal(64, 64, dtype=torch.bfloat16)
    assert error_report(square.t(), square).planned.kernel.endswith("_nt")


def test_float64():
    report = error_report((64, 64, 1000), dtype=torch.float64)
    assert 0 < report.planned.largest < 1e-6
    assert report.planned.last_place > 0


def test_it_prints_and_saves():
    report = error_report((128, 64, 256), dtype=torch.float16, out_dtype=torch.float32)
    assert isinstance(report, ErrorReport)
    assert "128 x 64 x 256, f16 to f32, normal, on an H200: 48 rows" in str(report)
    assert "acc_dtype=float32 (planned)" in str(report)
    content = json.loads(json.dumps(report.to_dict()))
    assert content["ways"][0]["kernel"] == report.planned.kernel and content["advice"]


def test_units_of_the_last_place():
    exact = torch.tensor([1.0, 2.0, 0.0, 3e-5], dtype=torch.float64)
    result = torch.tensor([1.0 + 2**-10, 2.0 + 2**-8, 0.0, 3e-5]).half()
    units = [last_places(result[i], exact[i]) for i in range(4)]
    assert units[:3] == [1, 2, 0] and 0 < units[3] < 0.51  # the last one is subnormal
    assert last_places(torch.tensor(7, dtype=torch.int32), torch.tensor(5.0).double()) == 2


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"a": normal(4, 8)}, TypeError, "b is missing"),
        ({"a": (4, 8)}, ValueError, r"three sizes \(M, N, K\)"),
        ({"a": (4, 8, -1)}, ValueError, "three sizes"),
        ({"a": (4, 8, 16), "b": normal(8, 4)}, TypeError, "here a is a shape"),
        ({"a": (4, 8, 16), "data": "cauchy"}, ValueError, "'cauchy'; expected one of normal"),
        ({"a": (4, 8, 16), "device": "Z9"}, ValueError, "'Z9'; expected one of H200"),
        ({"a": (0, 8, 16)}, ValueError, "no elements"),
        ({"a": normal(2, 4, 8), "b": normal(8, 4)}, ValueError, "needs a matrix with numbers"),
        ({"a": normal(4, 8), "b": normal(9, 4)}, RuntimeError, "9"),
        ({"a": normal(4, 8) / 0, "b": normal(8, 4)}, ValueError, "a holds Inf or NaN"),
        ({"a": normal(4, 8), "b": [1.0]}, TypeError, "b is a list"),
    ],
)
def test_bad_input(options, error, words):
    with pytest.raises(error, match=words):
        error_report(options.pop("a"), options.pop("b", None), **options)


def test_sparse_operands_are_refused():
    sparse = tcgemm.compress24(normal(16, 32, dtype=torch.float16), prune=True)
    with pytest.raises(TypeError, match="a is a SparseTensor24, but error_report takes dense"):
        error_report(sparse, normal(32, 8, dtype=torch.float16))


@pytest.mark.parametrize("data", DISTRIBUTIONS)
def test_distributions(data):
    generator = torch.Generator().manual_seed(0)
    x = draw((200, 300), data, torch.float32, generator)
    assert (x.min() >= 0) == (data == "uniform")
    assert (x.abs().max() > 20) == (data == "spread")
    assert draw((9, 9), data, torch.int8, generator).abs().max() == 127
    assert draw((9, 9), data, torch.uint8, generator).max() == 255
