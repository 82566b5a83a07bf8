"""Rows: repetitions of a case, their medians and ranges; resumed runs, shards, merging."""

import functools
import re

import pytest
import torch

import tcgemm
from tcgemm.measure import kernel_name, name_of, plan, results, run, work
from tcgemm.measure.case import Case
from tcgemm.measure.results import Results

from support.bench_fixtures import row

CASE = Case("mm", "bf16", "TN", 4096, 4096, 4096, set="squares")


def measured(ratio, us=200.0, date="1", **fields):
    """The row of one repetition."""
    return row(CASE, us, {"torch": ratio}, date=date, **{"tflops": 687.2} | fields)


def repeated(*ratios):
    """The row of several repetitions, each with these {name: ratio}."""
    rows = [row(CASE, 200.0 + i, each, date=str(i), tflops=687.2) for i, each in enumerate(ratios)]
    return functools.reduce(results.joined, rows)


def test_a_row_has_medians_and_each_repetition():
    ratios = ((0.99, 1.1), (1.03, 0.95), (0.97, 1.05))
    several = repeated(*({"torch": one, "torch fused": fused} for one, fused in ratios))
    assert (several["ratios"], several["us"]) == ({"torch": 0.99, "torch fused": 1.05}, 201.0)
    assert several["tflops"] == pytest.approx(687.2 * 202 / 201, rel=1e-3)
    assert results.span(several) == (0.97, 1.03)
    assert results.span(several, "torch fused") == (0.95, 1.1)
    first = {"us": 200.0, "ratios": {"torch": 0.99, "torch fused": 1.1}, "date": "0"}
    assert several["repetitions"][0] == first | {"clock_mhz": 1500.0, "power_w": 690.0}


def test_a_single_repetition_is_the_row():
    single = measured(1.02)
    assert results.span(single) == (1.02, 1.02) and results.span(single, "torch dense") is None
    assert results.repetitions(single | {"us": None}) == []
    assert results.repetitions_left(single | {"ratios": {}}, {}) == 0


@pytest.mark.parametrize(
    ("ratio", "aims", "missing"),
    [
        (0.95, {}, 2),
        (1.12, {}, 0),
        (0.85, {}, 0),
        (1.55, {"torch": (1.6,)}, 2),
        (1.9, {"torch": (1.6,)}, 0),
        (1.9, {"tcgemm TN": (1.9,)}, 0),
    ],
)
def test_a_clear_ratio_needs_no_more_repetitions(ratio, aims, missing):
    assert results.repetitions_left(measured(ratio), aims) == missing


def test_a_claim_holds_for_the_whole_range():
    assert results.claim((1.01, 1.03), 1.01) == "PASS"
    assert results.claim((0.97, 0.99), 1.0) == "MISS"
    assert results.claim((0.99, 1.01), 1.0) == "UNCLEAR"


def test_the_key_is_the_case(tmp_path):
    row = measured(1.0)
    assert results.key(row) == "squares/mm/bf16/TN/4096/4096/4096/f32"
    assert results.key(row) == results.key(measured(1.2, us=3.0, commit="def"))
    assert results.key(row) != results.key(row | {"batch": 4})
    model = {"set": "models", "function": "decode", "variant": "a", "us": 1.0, "tokens": 16}
    assert results.key(results.EMPTY | model) == "models/decode/16/a"


def test_a_file_keeps_every_field_and_leaves_out_the_empty_ones(tmp_path):
    rows = [
        measured(1.1),
        repeated({"torch": 1.0}, {"torch": 1.1}) | {"batch": 3},
        measured(1.0, set="llm") | {"us": None},
    ]
    path = tmp_path / results.file_name("NVIDIA H200")
    assert path.name == "h200.json"
    Results.of(rows, {"gpu": "NVIDIA H200"}).save(path)
    copy = Results.load(path)
    assert copy == Results.of(rows, {"gpu": "NVIDIA H200"})
    assert len(path.read_text().splitlines()) == 8  # a row a line
    assert '"facts"' not in path.read_text() and '"batch":3' in path.read_text()
    assert Results.load(tmp_path / "none.json") == Results()


def small_run(tmp_path, capsys, *more):
    """Runs three cases: (status, text, results)."""
    arguments = ["--set", "smoke", "--layout", "TN", "--dtype", "f32", "--device", "cpu"]
    arguments += ["--commit", "abc", "--out", str(tmp_path / "cpu.json"), *more]
    status = run.main(arguments)
    return status, capsys.readouterr().out, Results.load(tmp_path / "cpu.json")


@pytest.fixture
def measurements(monkeypatch):
    """Every measurement of a product: (size, checks). The ratio grows with each, from 0.99."""
    calls = []

    def measure(runnable, *, checks, **options):
        calls.append((runnable.case.size, checks))
        fields = work.case_fields(runnable.case, "cpu")
        values = {"us": 5.0, "iqr_us": 0.1, "exact": True, "max_error_ratio": 0.9}
        ratio = {"ratios": {"torch": 0.98 + 0.01 * len(calls)}, "date": f"{len(calls):03}"}
        return fields | results.EMPTY | values | ratio

    monkeypatch.setattr(work, "measure", measure)
    return calls


def test_repetitions_are_spread_over_the_run(tmp_path, capsys, measurements):
    status, out, stored = small_run(tmp_path, capsys)
    assert status == 0 and "3 of 3 cases done, 0 failed or wrong." in out
    sizes = ["64^3", "65x33x17", "1x40x96"]
    assert [size for size, _ in measurements] == 3 * sizes
    assert [checks for _, checks in measurements] == [None] * 3 + [(0.9, True)] * 6
    assert [len(row["repetitions"]) for row in stored.rows] == [3, 3, 3]
    assert "1.020 x torch (0.990 to 1.050)" in out


def test_a_killed_run_loses_one_repetition(tmp_path, capsys, measurements, monkeypatch):
    measure = work.measure

    def killed(*arguments, **options):
        if len(measurements) == 4:
            raise KeyboardInterrupt
        return measure(*arguments, **options)

    monkeypatch.setattr(work, "measure", killed)
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path, capsys)
    monkeypatch.setattr(work, "measure", measure)
    _, out, stored = small_run(tmp_path, capsys, "--resume")
    assert "3 of 3 cases done" in out and len(measurements) == 9
    assert {len(row["repetitions"]) for row in stored.rows} == {3}
    small_run(tmp_path, capsys, "--resume", "--commit", "def")
    assert len(measurements) > 9  # another commit: nothing is known


def test_shards_share_the_cases_and_merge(tmp_path, capsys, measurements):
    parts = [small_run(tmp_path / str(i), capsys, "--shard", f"{i}/2")[2] for i in (1, 2)]
    assert [len(part.rows) for part in parts] == [2, 1]
    assert len(parts[0].merge(parts[1]).rows) == 3


def test_merging_keeps_the_repetitions_of_one_commit():
    first, second, third = (
        Results.of([measured(ratio, date=str(i), commit=commit)], {"torch": str(i)})
        for i, (commit, ratio) in enumerate((("abc", 0.98), ("abc", 1.0), ("def", 1.02)))
    )
    both = Results.of(first.rows).merge(second).merge(first)
    (row,) = both.rows
    assert [part["ratios"]["torch"] for part in row["repetitions"]] == [0.98, 1.0]
    assert row["ratios"]["torch"] == 0.99 and both.header == {"torch": "0"}
    (row,) = both.merge(third).rows
    assert (row["commit"], row["ratios"]["torch"]) == ("def", 1.02)
    failure = Results.of([measured(1.0, commit="def") | {"us": None, "ratios": {}}])
    assert both.merge(failure).rows == [row]


def test_a_plan_has_the_name_that_explain_takes():
    a = torch.empty(512, 512, dtype=torch.bfloat16, device="meta")
    explanation = tcgemm.explain(a, a.t(), device="H200")
    assert kernel_name(a, a.t(), device="H200") == explanation.kernel
    assert f" {explanation.kernel} (row " in explanation
    launch = plan(a, a.t(), device="H200").launch
    assert launch == f"{explanation.kernel}@{explanation.cluster}/{explanation.slices}"
    assert name_of(tcgemm.explain(a, a.t(), device="H200", kernel=launch)) == launch
    assert plan(a[:0], a) == ("cpu", "", "")


def test_commit_is_named_or_unknown(monkeypatch, tmp_path):
    assert re.fullmatch(r"[0-9a-f]{7,}\+?|unknown", results.commit())
    monkeypatch.setattr(results, "CHECKOUT", tmp_path)
    assert results.commit() == tcgemm.__version__  # an installed package
    (tmp_path / "csrc").mkdir()
    assert results.commit() == "unknown"  # sources without git
