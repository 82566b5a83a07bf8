"""Variants of one step, measured side by side: their order, their rows, and what fails."""

import pytest
import torch

from benchmarks.experiments import side_by_side
from benchmarks.experiments.side_by_side import SideBySide, Step
from tcgemm.measure import results, run

CPU = torch.device("cpu")


class Recorder(Step):
    """A step that writes down its calls, and in which session they were."""

    order: list = []
    inside: list = []

    def __init__(self, name):
        self.name = name

    def __call__(self, index):
        assert self.inside == [self.name]
        self.order.append(self.name)

    def session(self):
        return self

    def __enter__(self):
        self.inside.append(self.name)

    def __exit__(self, *_):
        self.inside.pop()

    def facts(self):
        return {"said": self.name}


class Late(Recorder):
    """Fails after the measurement."""

    def facts(self):
        raise RuntimeError("\n  lost\nat line 3")


class Breaks(Recorder):
    """Fails in the measurement, after its warm-up."""

    calls = 0

    def __call__(self, index):
        self.calls += 1
        if self.calls > side_by_side.WARM_UP:
            raise torch.OutOfMemoryError("CUDA out of memory.")


def built(name):
    if name == "bad compiled":
        raise RuntimeError("Failed to find C compiler.\nSet CC.")
    return {"late": Late, "breaks": Breaks}.get(name, Recorder)(name)


NAMES = ("torch", "torch compiled", "a", "a compiled", "bad compiled", "late", "breaks")
JOB = SideBySide("some", {"set": "some", "size": 3}, NAMES, lambda device: built, repetitions=2)


def test_rows_have_the_ratios_to_their_baselines():
    rows = {row["function"]: row for row in JOB.measure(run.Conditions(CPU, 1.0), {}, None)}
    assert tuple(rows) == NAMES
    assert rows["torch"]["ratios"] == {} and list(rows["a"]["ratios"]) == ["torch"]
    assert list(rows["torch compiled"]["ratios"]) == ["torch"]
    compiled = rows["a compiled"]
    assert list(compiled["ratios"]) == list(compiled["baselines"]) == ["torch", "torch compiled"]
    for repetition in rows["a"]["repetitions"]:
        assert repetition["ratios"]["torch"] > 0
    assert len(rows["a"]["repetitions"]) == 2 and rows["a"]["facts"] == {"said": "a"}
    assert results.key(compiled) == "some/a compiled/False/3"
    assert rows["bad compiled"]["why"] == "tcgemm failed: Failed to find C compiler."
    assert rows["breaks"]["why"] == "CUDA out of memory." and rows["breaks"]["us"] is None
    assert rows["late"]["why"] == "tcgemm failed: lost" and rows["late"]["us"] is None
    assert [results.key(case) for case in JOB.cases(CPU)] == [*map(results.key, rows.values())]


def test_a_run_measures_a_job_once_and_resumes(tmp_path, capsys):
    path = str(tmp_path / "cpu.json")
    arguments = ["--set", "some", "--device", "cpu", "--ms", "1", "--max-size", "8"]
    arguments += ["--commit", "abc", "--out", path, "--repetitions", "2"]
    whole = {"some": lambda options: [JOB]}
    assert run.main(arguments, experiments=whole) == 1
    assert "1 of 1 cases done, 3 failed or wrong." in capsys.readouterr().out
    rows = results.Results.load(path).rows
    assert len(rows) == len(NAMES) and len(rows[-1]["repetitions"]) in (0, 2)
    good = SideBySide("some", JOB.case, NAMES[:4], JOB.builder, repetitions=2)
    Recorder.order.clear()
    assert run.main([*arguments, "--resume"], experiments={"some": lambda options: [good]}) == 0
    assert not Recorder.order, "nothing is missing"


def test_jobs_are_chosen_by_their_names(capsys):
    job = SideBySide("another", {"set": "some"}, ("a", "b"), JOB.builder)
    arguments = ["--set", "some", "--dry-run", "--only", "anoth"]
    assert run.main(arguments, experiments={"some": lambda options: [JOB, job]}) == 0
    assert capsys.readouterr().out.split() == ["another", "a,", "b"]


def test_a_cpu_measures_small_experiments_only(capsys):
    with pytest.raises(SystemExit):
        run.main(["--set", "some", "--device", "cpu"], experiments={"some": lambda options: []})
    assert "--set some needs a GPU" in capsys.readouterr().err


@pytest.mark.gpu
def test_a_gpu_measures_a_graph_and_calls():
    x = torch.randn(512, 512, device="cuda")

    class Product(Step):
        def __call__(self, index):
            return x @ x

    class Synchronizes(Step):
        def __call__(self, index):
            return float(x.sum())

    kinds = {"torch": Product, "a": Product, "synchronizes": Synchronizes}
    job = SideBySide("gpu", {"set": "gpu"}, tuple(kinds), lambda _: lambda name: kinds[name]())
    rows = job.measure(run.Conditions(torch.device("cuda", 0), 5.0), {}, None)
    assert [(row["function"], row["graph"]) for row in rows] == [
        (name, graph) for graph in (True, False) for name in kinds
    ]
    found = {(row["function"], row["graph"]): row for row in rows}
    assert found["a", True]["ratios"]["torch"] > 0
    assert found["synchronizes", True]["us"] is None and found["synchronizes", True]["why"]
    assert found["synchronizes", False]["us"] > 0
