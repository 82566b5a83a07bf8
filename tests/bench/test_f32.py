"""The measuring tools for f32 with precision="highest": cases, data, bound, targets, pages."""

import importlib
import math

import pytest
import torch

import tcgemm
from benchmarks import report, results_file, targets, workloads
from benchmarks.case import Case
from benchmarks.cases import cases as cases_of
from benchmarks.fp32_errors import measure as fp32_measure
from benchmarks.fp32_errors import table as fp32_table
from tcgemm.testing import numerics, operands

from support import split_terms
from support.bench_fixtures import row

# Cases.


def test_cases_have_targets_and_what_users_have():
    cases = cases_of("highest")
    plain = {case.m for case in cases if case.epilogue == "none" and case.op == "mm"}
    assert plain >= {512, 1024, 2048, 3072, 4096, 6144, 8192, 4095}
    spread = {(case.m, case.layout) for case in cases if case.epilogue == "spread"}
    assert spread == {(m, layout) for m in (2048, 4096, 8192) for layout in ("TN", "NN")}
    kept = {(case.m, case.n, case.k) for case in cases if case.epilogue == "prepared"}
    assert kept == {(m, n, 4096) for m in (16, 256, 4096) for n in (4096, 14336)}
    assert any(case.op == "bmm" for case in cases) and any(case.k > 8192 for case in cases)
    assert {case.dtype for case in cases} == {"f32"}
    assert len(cases) < 40  # four minutes
    assert cases_of("highest", ("bf16",)) == []
    assert {case.layout for case in cases_of("highest", None, ("NN",))} == {"NN"}


def test_every_product_is_asked_for_all_bits():
    for case in cases_of("smoke-dtypes", ("f32",)):
        if case.dtype == "f32" and case.epilogue != "prepared":
            work = workloads.Workload(case, "cpu")
            assert work.options["precision"] == "highest"
            assert workloads.baseline_name(case) == "torch.mm"


def test_a_prepared_weight_is_made_of_the_data_it_is_used_with(monkeypatch):
    made, used = [], []

    def prepare(weight):
        made.append(weight.clone())
        return made[-1]

    monkeypatch.setattr(tcgemm, "prepare", prepare, raising=False)
    linear = tcgemm.linear
    monkeypatch.setattr(
        tcgemm, "linear", lambda a, w, *rest, **more: used.append(w) or linear(a, w, *rest, **more)
    )
    case = next(c for c in cases_of("smoke-dtypes") if c.epilogue == "prepared")
    work = workloads.Workload(case, "cpu")
    ratio, exact = work.check()
    assert 0 < ratio <= 1 and exact and len(made) == 4 * work.sets
    assert len(used) == 2 and used[0] is made[work.sets] and used[1] is made[2 * work.sets]
    for index in range(work.sets):
        assert torch.equal(work.weights[index], work.operands.b[index].mT)
    work.operands.poison()
    work.candidates()["self_baseline"](1)
    assert len(used) == 2 and not work.operands.out[1].isnan().any()


# Data and bound.


def test_spread_data_is_for_bf16_parts():
    data = operands.Operands.build("NN", 40, 30, 600, dtype=torch.float32, device="cpu", sets=2)
    data.spread(torch.Generator().manual_seed(1))
    size = data.a[1].abs()
    assert (size.amax(1) / size.amin(1)).log2().min() > 28
    assert size.min() > 2.0**-60 and size.max() < 2.0**24
    assert not torch.equal(data.a[0], data.a[1])


def test_whole_numbers_are_spread_without_another_product():
    data = operands.Operands.build("TN", 40, 30, 600, dtype=torch.float32, device="cpu", sets=2)
    data.integers(4, torch.Generator().manual_seed(1), spread=True)
    a, b = data.a[1].double(), data.b[1].double()
    assert a.abs().max() >= 2.0**19 and a[a != 0].abs().min() <= 2.0**-18
    assert torch.equal(a.unsqueeze(-1) * b.unsqueeze(0), (a.unsqueeze(-1) * b.unsqueeze(0)).round())
    assert numerics.is_exact(tcgemm.mm(data.a[1], data.b[1], precision="highest"), a, b)


def test_powers_are_exact():
    exponents = torch.arange(-149, 128)
    mantissa, found = torch.frexp(operands.powers_of_two(exponents))
    assert torch.equal(mantissa, torch.full_like(mantissa, 0.5))
    assert torch.equal(found, (exponents + 1).to(found.dtype))


def ratio(way, without=None, k=512):
    data = operands.Operands.build("TN", 64, 48, k, dtype=torch.float32, device="cpu", sets=1)
    (data.normal if way == "f16" else data.spread)(torch.Generator().manual_seed(1))
    a, b = data.a[0], data.b[0]
    out = split_terms.product(a, b, way, without)
    return numerics.error_ratio(out, a, b, accumulation="f32", dtype="f32")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_bound_sees_a_part_left_out(monkeypatch, device):
    """By the bound of either device, on the CPU."""
    limit = numerics.f32_tolerance
    monkeypatch.setattr(numerics, "f32_tolerance", lambda _, k: limit(device, k))
    for way in split_terms.KINDS:
        assert 0 < ratio(way) < 0.3
    products = split_terms.KINDS["f16"][-1]
    assert all(ratio("f16", index) > 1 for index in range(len(products)))
    # The smallest three of bf16 are worth less than roundings; the table of errors sees them.
    assert all(ratio("bf16", index) > 1 for index in range(3, 6))


def test_tolerance_grows_as_roundings_do():
    for k in (1, 2, 8):
        assert numerics.f32_tolerance("cpu", k) == k + 1
    assert numerics.f32_tolerance("cpu", 4096) == 1 + 3 * math.sqrt(4096)
    assert numerics.f32_tolerance("cuda", 8192) < 0.2 * numerics.f32_tolerance("cpu", 8192)


# torch.


def test_tf32_is_forbidden_for_one_call_alone(monkeypatch):
    seen = []
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32, matmul.fp32_precision
    monkeypatch.setattr(torch, "mm", lambda *_, **__: seen.append(matmul.fp32_precision))
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda a, w, _: seen.append(matmul.fp32_precision) or a
    )
    try:
        for setting in ("tf32", "ieee", "none"):
            matmul.allow_tf32 = setting == "tf32"  # torch has two settings, which must agree
            matmul.fp32_precision = setting
            workloads.Workload(Case("mm", "f32", "NN", 8, 8, 8), "cpu").call_baseline(0)
            workloads.Workload(Case("linear", "f32", "TN", 8, 8, 8), "cpu").call_baseline(0)
            fp32_measure.torch_mm(torch.ones(1, 1), torch.ones(1, 1))
            assert matmul.fp32_precision == setting
            assert matmul.allow_tf32 == (setting == "tf32")
    finally:
        matmul.allow_tf32, matmul.fp32_precision = before
    assert seen == ["ieee"] * 9


# Targets.


def highest(factor=1.0):
    """Results of the set `highest`, all `factor` times as fast as the targets."""
    results = results_file.empty()
    results["header"] = {"gpu": "NVIDIA H200", "torch": "2"}
    for case in cases_of("highest"):
        us = 5.0 + case.flops / (1.1e8 if case.epilogue == "spread" else 2.2e8)
        least = {512: 1.2, 1024: 2.0}.get(case.m, 2.2 if case.epilogue == "spread" else 4.0)
        detail = (
            {"own": workloads.SELF_BASELINES[case.self_baseline], "own_ratio": 1.1}
            if case.self_baseline
            else {}
        )
        times = {"rival_us": us * least * factor, "ratio": least * factor}
        results_file.put(results, row(case, us, **times), detail)
    return results


def test_each_shape_has_to_be_as_fast_as_its_target():
    found = {outcome.name: outcome for outcome in targets.outcomes(highest(1.01))}
    assert len(found) == 4 and all(outcome.met for outcome in found.values())
    results = highest(1.2)
    slow = next(r for r in results["rows"] if r["m"] == 6144 and r["layout"] == "NN")
    slow["ratio"] = 3.98  # below the target, though the mean is not
    words = {outcome.name: outcome.word for outcome in targets.outcomes(results)}
    assert words.pop("each f32 2048 to 8192 x torch.mm") == "MISS"
    assert set(words.values()) == {"PASS"}


# Pages and picture.


def table():
    """An error table as of an H200, of exact results."""

    def product(a, b):
        return (a.double() @ b.double()).float()

    cases = [case for case in fp32_measure.plan("cpu", size=16) if case[-1] in fp32_table.SHOWN]
    rows = [fp32_measure.measure(*case, "cpu", gemm=product) for case in cases]
    return {"header": {"gpu": "NVIDIA H200", "commit": "abc"}, "rows": rows}


@pytest.fixture(scope="module")
def found():
    return table()


def test_pages_have_errors_and_rates(tmp_path, found):
    readme = tmp_path / "README.md"
    readme.write_text(report.BEGIN + report.END)
    results_file.save(highest(), tmp_path / "h200.json")
    shard = tmp_path / "shard" / "table.json"
    fp32_table.save(shard, **found)
    folder = ["--results", str(tmp_path), "--readme", str(readme), "--no-plot"]
    report.main(["--errors", str(shard), *folder])
    assert fp32_table.load(tmp_path / "errors" / "h200.json") == found
    for text in (readme.read_text(), (tmp_path / "h200.md").read_text()):
        assert "| each f32 2048 to 8192 x torch.mm | 4.00 | **4.00** | 4.00 | 0.90 | met |" in text
        assert "| f32 TN | f32 TN, prepared | f32 TN, spread | f32 NN | f32 NN, spread |" in text
        assert "us, **4.00**, 1.10 |" in text
        compared = 12 * (len(fp32_table.TITLES) - len(fp32_table.NOT_COMPARED))
        assert f"Of {compared} results (M = N = 16, TN and NN" in text
        assert f"{compared} are right and err at most as torch's, max and rms." in text
        assert "| 2^±20 an element | **" in text and "| 12 of 12 |" in text
    assert "| K = 4096 |" in readme.read_text() and "| K = 32 |" not in readme.read_text()
    assert "| K = 32 |" in (tmp_path / "h200.md").read_text()
    report.main(folder)  # without an error table beside it, pages have the rates alone
    (tmp_path / "errors" / "h200.json").unlink()
    report.main(folder)
    assert "2^±20 an element" not in readme.read_text()


def test_a_cell_shows_what_is_wrong():
    errors_of = {"max": 0.8512, "rms": 0.0912, "wrong": 0}
    bad = {"max": None, "rms": 123.4, "wrong": 7}
    assert fp32_table._cell({"ours": errors_of, "theirs": bad}) == (
        "**0.85 / 0.091** (Inf / 123, 7 wrong)"
    )


def test_a_picture_of_errors_and_rates(tmp_path, found):
    pytest.importorskip("matplotlib")
    plot_errors = importlib.import_module("benchmarks.fp32_errors.plot")
    path = plot_errors.draw(found, highest(), tmp_path / "h200-f32.png")
    assert path.read_bytes()[:4] == b"\x89PNG" and path.stat().st_size > 20_000
    assert plot_errors.draw(found, results_file.empty(), tmp_path / "few.png")
    assert plot_errors.draw(None, highest(), tmp_path / "none.png") is None
    rates = plot_errors.cubes(highest(), "TN")
    assert [size for size, _ in rates["spread"]] == [2048, 4096, 8192]
    assert {size for size, _ in rates["ours"]} == {size for size, _ in rates["theirs"]}
