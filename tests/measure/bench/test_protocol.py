"""The protocol: repetitions of a case, their medians and ranges; resumed runs, shards, merging."""

import pytest

from benchmarks import merge
from tcgemm.measure import protocol, results_file, run, timing
from tcgemm.measure.case import Case

from support.bench_fixtures import row

CASE = Case("mm", "bf16", "TN", 4096, 4096, 4096, set="squares")


def measured(ratio, us=200.0, date="1", **detail):
    """(row, detail) of one repetition."""
    result = row(CASE, us, baseline_us=us * ratio, ratio=ratio)
    return result, {"date": date, **detail}


def repeated(*ratios):
    """(row, detail) of several."""
    pairs = [measured(ratio, 200.0 + i, str(i)) for i, ratio in enumerate(ratios)]
    return protocol.combined(*pairs[-1], [protocol.repetition(*pair) for pair in pairs])


def test_a_row_has_medians_and_its_details_each_repetition():
    result, detail = repeated(0.99, 1.03, 0.97)
    assert (result["ratio"], result["us"]) == (0.99, 201.0)
    assert result["tflops"] == pytest.approx(CASE.flops / 201.0 / 1e6, rel=1e-3)
    assert protocol.span(result, detail) == (0.97, 1.03)
    first = detail["repetitions"][0]
    assert first["us"] == {"tcgemm": 200.0, "baseline": 198.0}
    assert (first["clock_mhz"], first["power_w"], first["date"]) == (1500.0, 690.0, "0")
    assert tuple(result) == results_file.KEYS


def test_other_candidates_have_medians_as_well():
    pairs = [
        measured(
            1.0, date=str(i), fused="torch._addmm_activation", fused_us=us, fused_ratio=us / 200
        )
        for i, us in enumerate((210.0, 220.0, 190.0))
    ]
    result, detail = protocol.combined(*pairs[0], [protocol.repetition(*pair) for pair in pairs])
    assert (detail["fused_us"], detail["fused_ratio"]) == (210.0, 1.05)
    assert protocol.span(result, detail, "fused_ratio") == (0.95, 1.1)
    assert protocol.ratios(result, detail) == {"ratio": 1.0, "fused_ratio": 1.05}


def test_stored_rows_without_repetitions_count_as_one():
    result, detail = measured(1.02)
    assert protocol.span(result, detail) == (1.02, 1.02)
    assert protocol.repetitions_left(result, detail, {}) == 2
    failure = {**result, "us": None, "ratio": None}
    assert protocol.repetitions(failure, {"error": "x"}) == []


@pytest.mark.parametrize(
    ("ratio", "aims", "missing"),
    [
        (0.95, {}, 2),
        (1.12, {}, 0),
        (0.85, {}, 0),
        (1.55, {"ratio": (1.6,)}, 2),
        (1.9, {"ratio": (1.6,)}, 0),
        (1.9, {"self_baseline_ratio": (1.9,)}, 0),
    ],
)
def test_a_clear_ratio_needs_no_more_repetitions(ratio, aims, missing):
    assert protocol.repetitions_left(*measured(ratio), aims) == missing


def test_a_case_without_a_ratio_is_measured_once():
    result, detail = measured(1.0)
    assert (
        protocol.repetitions_left({**result, "ratio": None, "baseline_us": None}, detail, {}) == 0
    )


def test_a_claim_holds_for_the_whole_range():
    assert protocol.claim((1.01, 1.03), 1.01) == "PASS"
    assert protocol.claim((0.97, 0.99), 1.0) == "MISS"
    assert protocol.claim((0.99, 1.01), 1.0) == "UNCLEAR"


def test_a_measurement_ends_early_where_the_ratio_is_clear():
    calls = []

    def enough(timings):
        calls.append(timings)
        return len(timings) == 1

    def call(index):
        pass

    common = {"device": "cpu", "min_ms": 400.0, "first_ms": 200.0, "enough": enough}
    single = timing.measure({"tcgemm": call}, 1, **common)
    assert 200 <= single["tcgemm"].total_ms < 350 and len(calls) == 1
    pair = timing.measure({"tcgemm": call, "baseline": call}, 1, **common)
    assert all(sample.total_ms >= 400 for sample in pair.values()) and len(calls) == 2
    assert protocol.ratios_of(pair).keys() == {"ratio"}


def small_run(tmp_path, capsys, *more, ratios=(0.99, 1.0, 1.01)):
    """Runs three cases whose ratios are given by repetition; (status, text, results)."""
    arguments = ["--set", "smoke", "--layout", "TN", "--dtype", "f32", "--device", "cpu"]
    arguments += ["--commit", "abc", "--out", str(tmp_path / "cpu.json"), *more]
    status = run.main(arguments)
    return status, capsys.readouterr().out, results_file.load(tmp_path / "cpu.json")


@pytest.fixture
def measurements(monkeypatch):
    """Every call of measure_case: (size, checks). The ratio grows with each, from 0.99."""
    calls = []

    def measure(case, options, gpu, commit, reader, aims, checks=None):
        calls.append((case.size, checks))
        result = row(case, 5.0, ratio=0.98 + 0.01 * len(calls), baseline_us=5.0, commit=commit)
        detail = {"date": f"{len(calls):03}", "bytes": 1, "tcgemm_iqr_us": 0.0}
        return {**result, "gpu": "cpu", "graph": False}, detail

    monkeypatch.setattr(run, "measure_case", measure)
    return calls


def test_repetitions_are_spread_over_the_run(tmp_path, capsys, measurements):
    status, out, results = small_run(tmp_path, capsys)
    assert status == 0 and "3 of 3 cases done, 0 failed or wrong." in out
    sizes = ["64^3", "65x33x17", "1x40x96"]
    assert [size for size, _ in measurements] == 3 * sizes
    assert [checks for _, checks in measurements] == [None] * 3 + [(0.9, True)] * 6
    detail = results["details"][results_file.key(results["rows"][0])]
    assert len(detail["repetitions"]) == 3 and "in 3" in out


def test_a_killed_run_loses_one_repetition(tmp_path, capsys, measurements, monkeypatch):
    measure = run.measure_case

    def killed(*arguments):
        if len(measurements) == 4:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(run, "measure_case", killed)
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path, capsys)
    monkeypatch.setattr(run, "measure_case", measure)
    _, out, results = small_run(tmp_path, capsys, "--resume")
    assert "3 of 3 cases done" in out and len(measurements) == 9
    assert {len(detail["repetitions"]) for detail in results["details"].values()} == {3}
    _, _, _ = small_run(tmp_path, capsys, "--resume", "--commit", "def")
    assert len(measurements) > 9  # another commit: nothing is known


def test_shards_share_the_cases_and_merge(tmp_path, capsys, measurements):
    for part in (1, 2):
        small_run(tmp_path / str(part), capsys, "--shard", f"{part}/2")
    files = [tmp_path / str(part) / "cpu.json" for part in (1, 2)]
    assert [len(results_file.load(path)["rows"]) for path in files] == [2, 1]
    out = tmp_path / "all.json"
    assert merge.main([*map(str, files), "--out", str(out)]) == 0
    assert len(results_file.load(out)["rows"]) == 3


def test_merging_keeps_the_repetitions_of_one_commit(tmp_path):
    files = []
    for index, (commit, ratio) in enumerate((("abc", 0.98), ("abc", 1.0), ("def", 1.02))):
        results = results_file.empty()
        results["header"] = {"gpu": "NVIDIA H200"}
        result, detail = measured(ratio, date=str(index))
        results_file.put(results, {**result, "commit": commit}, detail)
        files.append(tmp_path / f"{index}.json")
        results_file.save(results, files[-1])
    out = tmp_path / "out.json"
    merge.main([str(files[0]), str(files[1]), str(files[0]), "--out", str(out)])
    results = results_file.load(out)
    detail = results["details"][results_file.key(results["rows"][0])]
    assert [repetition["ratio"] for repetition in detail["repetitions"]] == [0.98, 1.0]
    assert results["rows"][0]["ratio"] == 0.99
    merge.main([*map(str, files), "--out", str(out)])
    results = results_file.load(out)
    assert (results["rows"][0]["commit"], results["rows"][0]["ratio"]) == ("def", 1.02)
