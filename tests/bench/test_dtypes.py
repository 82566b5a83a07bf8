"""The measuring tools for fp8, int8, tf32 and f64: data, bounds, baselines, targets, tables."""

import importlib
import math
from dataclasses import asdict

import pytest
import torch

import tcgemm
from benchmarks import report, results_file, run, targets, workloads
from benchmarks.case import SCALES, Case
from benchmarks.cases import GROUPS
from benchmarks.cases import cases as cases_of
from tcgemm.testing import numerics, operands

from support.bench_fixtures import row, synthetic

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
EIGHT = {"e4m3": E4M3, "e5m2": E5M2, "s8": torch.int8, "u8": torch.uint8}


# Data and bounds.


@pytest.mark.parametrize("dtype", EIGHT.values(), ids=str)
def test_normal_data_of_8_bits(dtype):
    data = operands.Operands.build("NN", 70, 90, 80, dtype=dtype, device="cpu", sets=2)
    values = data.normal(torch.Generator().manual_seed(1)).a[1].double()
    middle, width = (128, 24) if dtype is torch.uint8 else (0, 24 if dtype is torch.int8 else 1)
    assert abs(values.mean() - middle) < 0.1 * width and 0.7 * width < values.std() < 1.9 * width
    whole = data.integers(4, torch.Generator().manual_seed(1)).b[0].double()
    assert torch.equal(whole, whole.round()) and whole.abs().max() == 4
    assert whole.min() == (0 if dtype is torch.uint8 else -4)
    bad = data.poison().out[0]
    assert bad.dtype is (torch.int32 if not dtype.is_floating_point else torch.bfloat16)
    assert bad.isnan().all() if dtype.is_floating_point else (bad == -(2**31)).all()


@pytest.mark.parametrize("shape", [(300, 260), (128, 128), (1, 4), (130, 500)])
@pytest.mark.parametrize("granularity", ["tensor", "row", "1x128", "128x128"])
def test_wide_is_dequantize(shape, granularity):
    values, scale = tcgemm.quantize(torch.randn(shape), E4M3, granularity)
    wide = numerics.apply_scale(values, scale)
    expected = tcgemm.dequantize(values, scale)
    torch.testing.assert_close(wide, expected.double(), rtol=2**-23, atol=0)


def test_tf32_is_what_the_products_round_to():
    x, one = torch.randn(40, 30), torch.eye(30)
    assert torch.equal(tcgemm.mm(x, one, precision="high"), numerics.round_to_tf32(x))


def test_growth_of_float8_sums(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    fast, promoted, exact, single = (
        numerics.accumulation_error("cuda", kind, 4096)
        for kind in ("fast", "promoted", "s32", "f32")
    )
    assert fast > 10 * promoted > 100 * single > exact == 0
    assert numerics.accumulation_error("cpu", "fast", 4096) == numerics.accumulation_error(
        "cpu", "f32", 4096
    )
    assert numerics.accumulation_error("cuda", "f32", 4096, dtype="tf32") > 1.9 * single


def checked(fault, case):
    work = workloads.Workload(case, "cpu")
    right = work.call_tcgemm

    def call_tcgemm(index, keep=True):
        right(index, keep)
        fault(work.operands.out[index])

    work.call_tcgemm = call_tcgemm
    return work.check()


def nothing(out):
    pass


def zero_tile(out):
    out[16:32, 8:16] = 0


def one_off(out):
    out[3, 5] = -out[3, 5] - 1


CASES = [case for case in cases_of("smoke-dtypes") if case.m >= 64]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dtype}-{case.epilogue}")
def test_checks_see_faults_in_every_dtype(case):
    ratio, exact = checked(nothing, case)
    assert ratio <= 1 and exact
    ratio, exact = checked(zero_tile, case)
    assert not ratio <= 1 and not exact
    ratio, exact = checked(one_off, case)
    assert not exact
    if case.accumulation == "s32":
        assert ratio > 1


def test_int8_with_scales_has_a_bound():
    data = operands.Operands.build("TN", 48, 40, 200, dtype=torch.int8, device="cpu", sets=1)
    a, b = data.normal().a[0], data.b[0]
    scales = torch.rand(48, 1) + 0.5, torch.rand(1, 40) + 0.5
    wide = numerics.apply_scale(a, scales[0]), numerics.apply_scale(b, scales[1])
    for out_dtype in (torch.float32, torch.bfloat16):
        out = tcgemm.mm(a, b, scale_a=scales[0], scale_b=scales[1], out_dtype=out_dtype)
        assert 0 < numerics.error_ratio(out, *wide, accumulation="s32") <= 1
        out[1] *= 1.02
        assert numerics.error_ratio(out, *wide, accumulation="s32") > 1


# Cases and baselines.


def test_cases_of_the_dtypes():
    names = GROUPS["dtypes"]
    cases = [case for name in names for case in cases_of(name)]
    assert {case.dtype for case in cases} == {"e4m3", "s8", "tf32", "f64", "f32"}
    accumulations = {(case.dtype, case.accumulation) for case in cases}
    assert ("s8", "s32") in accumulations and ("f64", "f64") in accumulations
    assert {("e4m3", "fast"), ("e4m3", "promoted")} <= accumulations
    assert set(GROUPS["all"]) == {*GROUPS["dense"], *names, *GROUPS["sparse"]}
    assert all("smoke" not in name for name in GROUPS["all"])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"dtype": "s8"}, "torch._int_mm"),
        ({"dtype": "e4m3"}, "torch._scaled_mm(use_fast_accum=False)"),
        ({"dtype": "e5m2", "accumulation": "fast"}, "torch._scaled_mm(use_fast_accum=True)"),
        ({"dtype": "tf32"}, "torch.mm allow_tf32"),
        ({"dtype": "f64"}, "torch.mm"),
        ({"dtype": "bf16", "op": "linear", "epilogue": "bias+gelu"}, "torch linear + gelu"),
    ],
)
def test_baselines_have_names(options, name):
    case = Case(**{"op": "mm", "layout": "TN", "m": 8, "n": 8, "k": 8, **options})
    assert workloads.baseline_name(case) == name


def test_tf32_is_allowed_for_one_call_alone(monkeypatch):
    seen = []
    monkeypatch.setattr(
        torch, "mm", lambda *_, **__: seen.append(torch.backends.cuda.matmul.allow_tf32)
    )
    work = workloads.Workload(Case("mm", "tf32", "NN", 8, 8, 8), "cpu")
    work.call_baseline(0)
    assert seen == [True] and not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("epilogue", SCALES)
def test_scales_lie_as_torch_wants_them(epilogue):
    case = Case("mm", "e4m3", "TN", 300, 260, 512, epilogue=epilogue)
    work = workloads.Workload(case, "cpu")
    shape_a, stride_a, shape_b, stride_b = {
        "tensor-scales": ((), (), (), ()),
        "row-scales": ((300, 1), (1, 1), (1, 260), (260, 1)),
        "128x128-scales": ((300, 4), (1, 300), (4, 3), (1, 4)),
        "1x128-scales": ((300, 4), (1, 300), (4, 260), (260, 1)),
    }[epilogue]
    assert (work.scale_a.shape, work.scale_a.stride()) == (shape_a, stride_a)
    assert (work.scale_b.shape, work.scale_b.stride()) == (shape_b, stride_b)
    assert ("precision", "promoted") in work.options.items()


def test_the_second_baseline_computes_the_same():
    work = workloads.Workload(Case("mm", "s8", "NT", 24, 16, 40, self_baseline="TN"), "cpu")
    own = work.candidates()["self_baseline"]
    work.call_tcgemm(1)
    expected = work.operands.out[1].clone()
    work.operands.poison()
    own(1)
    assert torch.equal(work.operands.out[1], expected)


def test_a_run_measures_every_dtype(tmp_path, capsys):
    arguments = ["--set", "smoke-dtypes", "--device", "cpu", "--ms", "1", "--commit", "abc"]
    assert run.main([*arguments, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "0 failed or wrong" in out and "torch refuses: " in out and "x tcgemm TN" in out
    results = results_file.load(tmp_path / "cpu.json")
    details = {
        results_file.key(r): results["details"][results_file.key(r)] for r in results["rows"]
    }
    refused = [r for r in results["rows"] if r["ratio"] is None]
    assert refused and all(details[results_file.key(r)]["refused"] for r in refused)
    assert any(detail.get("own_ratio") for detail in details.values())
    alone = [*arguments, "--out", str(tmp_path / "alone"), "--no-baseline"]
    assert run.main(alone) == 0
    assert "x tcgemm TN" not in capsys.readouterr().out


# Targets.

TARGETS = [one for one in targets.TARGETS if one.fields["set"] in GROUPS["dtypes"]]


def measured(factor=1.0, name="dtypes", spread=0.0):
    """Results of the sets of a group, every ratio `factor` times a bit more than its target."""
    results = results_file.empty()
    results["header"] = {"gpu": "NVIDIA H200", "torch": "2"}
    for case in (case for part in GROUPS[name] for case in cases_of(part)):
        us = (10.0 + case.flops / 6e8) * (1 + spread * (case.m % 2))
        fields = asdict(case)
        aims = [p.least for p in TARGETS if not p.self_baseline and p.is_about(fields)]
        ratio = factor * 1.0625 * max(aims, default=1.0)
        found = {"ratio": ratio, "rival_us": us * ratio} if case.baseline else {}
        detail = (
            {"own": workloads.SELF_BASELINES[case.self_baseline], "own_ratio": 0.99 * factor}
            if case.self_baseline
            else {}
        )
        results_file.put(results, row(case, us, **found), detail)
    return results


def test_targets_and_their_shapes():
    found = {target.name: (target.least, target.expected()) for target in TARGETS}
    assert found == {
        "s8 TN x torch._int_mm": (1.6, 4),
        "s8 NN x our own TN": (0.93, 4),
        "e4m3 fast x torch._scaled_mm": (1.02, 4),
        "e4m3 promoted x torch._scaled_mm": (1.02, 4),
        "e4m3 fast, row scales x a scale a tensor": (0.98, 4),
        "e4m3 fast, row scales x torch._scaled_mm": (1.03, 4),
        "e4m3 promoted, row scales x a scale a tensor": (0.98, 4),
        "e4m3 promoted, row scales x torch._scaled_mm": (1.03, 4),
        "e4m3 1x128 by 128x128 x torch._scaled_mm": (1.12, 4),
        "tf32 TN and NN x torch.mm": (1.08, 6),
        "f64 TN and NN x torch.mm": (1.04, 8),
        "each f32 2048 to 8192 x torch.mm": (4.0, 10),
        "each f32 1024 x torch.mm": (2.0, 2),
        "each f32 512 x torch.mm": (1.2, 2),
        "each f32 spread, 2048 to 8192 x torch.mm": (2.2, 6),
    }


def test_targets_are_met_missed_or_open():
    good = targets.outcomes(measured())
    assert len(good) == len(TARGETS) and all(outcome.met for outcome in good)
    assert not any(outcome.met for outcome in targets.outcomes(measured(0.9)))
    assert targets.outcomes(results_file.empty()) == []
    results = measured()
    about = TARGETS[2].is_about
    mine = [r for r in results["rows"] if about(r)]
    mine[0]["ratio"] = 0.94  # one shape too low
    assert targets.outcomes(results)[2].word == "MISS"
    mine[0]["ratio"] = None  # refused, or not measured
    assert targets.outcomes(results)[2].word == "3 of 4 shapes"
    mean = targets.outcomes(measured())[0].mean
    assert math.isclose(mean, 1.7)


def test_a_cliff_is_seen():
    assert max(max(s.values()) for s in targets.cliffs(measured()).values()) < 1.02
    steep = targets.cliffs(measured(spread=0.2))
    assert set(steep) == {"e4m3", "s8", "tf32", "f64"}
    assert set(targets.cliffs(measured(name="dense"))) == {"bf16"}
    assert steep["s8"]["M"] > 1.19 and steep["s8"]["N"] < 1.02 and steep["s8"]["all"] > 1.19
    text, met, count = targets.summary_lines(measured(spread=0.2))
    assert (met, count) == (len(TARGETS), len(TARGETS) + 4)
    assert sum("cliff" in line and line.endswith("MISS") for line in text) == 4


def test_a_run_prints_targets(tmp_path, capsys, monkeypatch):
    def measure(case, options, gpu, commit, reader):
        index = results_file.key(workloads.as_row(case, "NVIDIA H200", {}))
        return {**found[index], "gpu": "cpu", "graph": False}, results["details"][index]

    results = measured()
    found = {results_file.key(r): r for r in results["rows"]}
    monkeypatch.setattr(run, "measure_case", measure)
    arguments = ["--set", "tf32", "--device", "cpu", "--commit", "abc", "--out", str(tmp_path)]
    monkeypatch.setattr(
        run, "line", lambda case, row, detail: f"{case.set} {case.size} {row['ratio']}"
    )
    assert run.main(arguments) == 0
    out = capsys.readouterr().out
    assert "targets: 2 of 2 met." in out and "cliff tf32: M 1.0" in out
    assert "tf32 TN and NN x torch.mm" in out


# The report.


@pytest.fixture
def pages(tmp_path):
    """(README, page) that the report writes of all sets."""
    readme = tmp_path / "README.md"
    readme.write_text(report.BEGIN + report.END)
    results = results_file.merge(synthetic(), measured())
    case = Case("mm", "e4m3", "NN", 4096, 4096, 4096, set="fp8", self_baseline="TN")
    refused = {"refused": "mat2 must be col_major", "own_ratio": 0.8}
    results_file.put(results, row(case, 150.0), refused)
    results_file.save(results, tmp_path / "h200.json")
    report.main(["--results", str(tmp_path), "--readme", str(readme), "--no-plot"])
    return readme.read_text(), (tmp_path / "h200.md").read_text()


def test_report_has_the_dtypes(pages):
    for text in pages:
        assert "| s8 TN x torch._int_mm | 1.60 | **1.70** | 1.70 | 0.90 | met |" in text
        assert "| e4m3 TN | e4m3 TN, fast acc | s8 TN | s8 NN |" in text
        assert "| e4m3 TN, 128x128 scales |" in text and "TOPS, **1.06**, 0.99 |" in text
        assert "refused, 0.80 |" in text
        assert "| | M | N | K | all |" in text and "| e4m3 | 1.0" in text
    assert "Batched" in pages[1] and "Batched" not in pages[0]
    assert len(pages[0].splitlines()) < 180


def test_plot_names_what_would_flatten_it(tmp_path):
    pytest.importorskip("matplotlib")
    plot = importlib.import_module("benchmarks.report.plots")
    results = measured()
    for found in results["rows"]:
        if (found["dtype"], found["layout"]) == ("s8", "NN"):
            found["ratio"] = 7.0
    panels = plot._panels(plot.square_rows(results))
    assert [title for _, title in panels] == ["other dtypes (above: s8 NN 7.0x and more)"]
    assert {found["dtype"] for found in panels[0][0]} == {"s8", "e4m3", "tf32", "f64"}
    assert plot.draw(results, tmp_path / "x.png").stat().st_size > 10_000
