"""The command that measures: what it stores, resumes, prints and refuses."""

from dataclasses import replace

import pytest

import benchmarks
from benchmarks import __main__ as benchmarks_main
from benchmarks import run as checkout_run
from tcgemm.cli import bench
from tcgemm.measure import run, workloads
from tcgemm.measure.case import Case
from tcgemm.measure.cases import EPILOGUES
from tcgemm.measure.results import Results, is_wrong
from tcgemm.measure.work import measure
from tcgemm.measure.works import work_of


def run_small(capsys, *arguments):
    status = checkout_run.main(["--device", "cpu", "--ms", "2", "--commit", "abc", *arguments])
    return status, capsys.readouterr().out


def test_a_run_measures_resumes_and_records(tmp_path, capsys, monkeypatch):
    arguments = ("--set", "smoke", "--layout", "TN,NT", "--out", str(tmp_path))
    status, out = run_small(capsys, *arguments)
    assert status == 0 and "12 of 12 cases done, 0 failed or wrong." in out
    path = tmp_path / "cpu.json"
    rows = Results.load(path).rows
    assert len(rows) == 12 and all(row["exact"] and row["ratios"]["torch"] > 0 for row in rows)
    assert all(0 < row["max_error_ratio"] <= 1 and not row["graph"] for row in rows)
    before = path.read_text()
    status, out = run_small(capsys, *arguments, "--resume")
    assert "12 of 12 cases done" in out and path.read_text() == before
    assert not Results.load(tmp_path / "cpu.json").rows[0]["clock_mhz"]
    elsewhere = (*arguments[:-1], str(tmp_path / "shard"), "--resume")
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path)
    status, out = run_small(capsys, *elsewhere)
    assert "12 of 12 cases done" in out and not (tmp_path / "shard").exists()
    status, out = run_small(capsys, *arguments, "--minutes", "0")
    assert "0 of 12 cases done" in out and "--resume goes on" in out
    assert "At most 36 repetitions are missing." in out


def test_a_run_goes_on_after_a_failing_case(tmp_path, capsys, monkeypatch):
    original = workloads.Workload.call_tcgemm

    def call_tcgemm(self, index):
        if self.case.m == 65:
            raise RuntimeError("No kernel fits.")
        return original(self, index) * (self.case.m != 64)

    monkeypatch.setattr(workloads.Workload, "call_tcgemm", call_tcgemm)
    arguments = ("--set", "smoke", "--layout", "TN", "--dtype", "f32", "--out", str(tmp_path))
    status, out = run_small(capsys, *arguments)
    assert status == 1 and "tcgemm failed: No kernel fits." in out and "WRONG RESULT" in out
    assert "3 of 3 cases done, 2 failed or wrong." in out
    rows = {row["m"]: row for row in Results.load(tmp_path / "cpu.json").rows}
    assert rows[65]["us"] is None and rows[64]["max_error_ratio"] > 1 and rows[1]["exact"]


@pytest.mark.parametrize(
    ("options", "own"),
    [(("smoke-dtypes",), "tcgemm TN"), (("smoke-sparse", "--dtype", "bf16,tf32"), "tcgemm dense")],
    ids=str,
)
def test_a_run_measures_every_kind(tmp_path, capsys, options, own):
    status, out = run_small(capsys, "--set", *options, "--out", str(tmp_path))
    assert status == 0 and "0 failed or wrong" in out and "torch refuses: " in out
    assert f"x {own}" in out and "x torch" in out
    rows = Results.load(tmp_path / "cpu.json").rows
    assert any(row["refused"] and "torch" not in row["ratios"] for row in rows)
    assert any(own in row["ratios"] for row in rows)
    for row in rows:
        assert row["exact"] and row["us"] > 0 and row["max_error_ratio"] <= 1 and row["gbps"] > 0
        if own == "tcgemm dense":
            assert ("kept 0." in out) and (own in row["ratios"]) is (row["m"] != 72)
            assert (row["tflops"] is None) is (row["function"] != "mm")


def test_the_command_line_measures(tmp_path, capsys):
    assert bench.run(["--set", "long-k", "--dry-run", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.count("long-k mm bf16 TN") == 7
    drawing = ["--set", "drawn-fast", "--seed", "77", "--dry-run", "--device", "cpu"]
    assert bench.run(drawing) == 0
    assert capsys.readouterr().out.count("drawn-fast@77 mm e4m3") == 40
    small = ["--set", "smoke", "--dtype", "f32", "--layout", "TN", "--device", "cpu", "--ms", "2"]
    assert bench.run(small) == 0
    assert "-> not stored" in capsys.readouterr().out
    assert benchmarks_main.main(["measure"]) == 2
    assert "run        measure sets" in capsys.readouterr().out


def test_cases_limited_in_size_are_no_results(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path)
    status, out = run_small(capsys, "--set", "llm", "--max-size", "32")
    assert status == 0 and "not stored" in out and "1 of 1 cases done" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("circles", "--set circles: there are dense, dtypes, sparse, all, drawn, squares"),
        ("llm --layout XX", "--layout XX: there are TN, NN, TT, NT."),
        ("llm --shard 3/2", "'3/2' is no part of a whole such as 2/5"),
        ("squares,sparse-mm", "needs a GPU (for sparse-mm), but this is the CPU; take --set smoke"),
    ],
)
def test_options_that_cannot_be_are_refused(options, sentence, capsys):
    with pytest.raises(SystemExit):
        run.parse(["--device", "cpu", "--set", *options.split()])
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert run.parse(["--set", "sparse", "--device", "cuda"]).device == "cuda"


@pytest.mark.gpu
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues_and_steps_on_a_gpu(epilogue):
    case = Case("linear", "bf16", "TN", 512, 768, 256, epilogue=epilogue)
    row = measure(work_of(case, "cuda"), ms=20.0)
    assert not is_wrong(row) and row["ratios"]["torch"] > 0, row
    assert ("torch fused" in row["ratios"]) == (epilogue == "bias+gelu_tanh")
    if epilogue in ("bias", "bias+gelu"):
        row = measure(work_of(replace(case, op="train"), "cuda"), ms=20.0)
        assert not is_wrong(row) and row["ratios"]["torch"] > 0, row
