"""Recordings of every kernel's time: what is drawn, measured and resumed, and what fit says of it.

The times are the planner's estimates, changed on purpose; nothing is measured.
"""

import collections
import math

import pytest
import torch

import tcgemm
from benchmarks import fit, recording, rows
from tcgemm import info
from tcgemm.measure import name_of, results
from tcgemm.measure.workloads import Workload

from support import plan_cases  # noqa: F401 (skips where the build is for other GPUs)

DEVICE, COUNT = "H200", 6


def estimate(problem, launch):
    """The planner's estimate; clusters that it does not take are slower."""
    estimates = problem.estimates()
    of_kernel = {recording.kernel_of(candidate): us for candidate, us in estimates.items()}
    return estimates.get(launch, 1.5 * of_kernel[recording.kernel_of(launch)])


@pytest.fixture
def gpu(monkeypatch):
    """A GPU whose rows take their estimates times a factor: {kernel: factor}, and the calls."""
    fake = collections.namedtuple("Gpu", "factors calls")({}, [])

    def time_launches(problem, launches, ms):
        fake.calls.append((problem.index, len(launches), ms))
        scale = 1.0 if ms == rows.FINE_MS else 1.02
        return {
            launch: estimate(problem, launch)
            * scale
            * fake.factors.get(recording.kernel_of(launch), 1)
            for launch in launches
        }

    monkeypatch.setattr(rows, "known_gpu", lambda: DEVICE)
    monkeypatch.setattr(rows, "time_launches", time_launches)
    monkeypatch.setattr(rows.machine, "facts", lambda device: {"gpu": "NVIDIA H200"})
    monkeypatch.setattr(results, "commit", lambda: "abc")
    return fake


def record(path, *options):
    assert rows.main(["--problems", str(COUNT), "--out", str(path), *options]) == 0
    return recording.load(path)


def test_problems_of_a_seed():
    problems = recording.draw(DEVICE)
    assert len(problems) == 120
    assert problems == recording.draw(DEVICE) != recording.draw(DEVICE, 2)
    for problem in problems:
        sizes = (problem.m, problem.n, problem.k)
        step = 16 if problem.dtype == "e4m3" else 8
        assert all(64 <= size <= 16384 and size % step == 0 for size in sizes)
        assert 2.0 * math.prod(sizes) <= 1.5e12
        assert problem.layout == "TN" or problem.dtype != "e4m3"
    assert {problem.dtype for problem in problems} == {"bf16", "f16", "e4m3"}
    assert {problem.layout for problem in problems} == {"TN", "NN", "TT", "NT"}
    assert {problem.epilogue for problem in problems} == {"", "bias", "bias+gelu_tanh"}
    assert 50 <= sum(problem.is_held_out for problem in problems) <= 70


@pytest.mark.parametrize("device", ["H200", "H100"])
def test_every_choice_is_a_row_that_is_measured(device):
    for problem in recording.draw(device):
        assert problem.choice in problem.estimates(), problem


def test_no_kernel_is_hidden_by_a_longer_name():
    for problem in recording.draw(DEVICE):
        assert all(facts["kernel"] == name for name, facts in problem.plans().items()), problem


def test_a_problem_is_a_case_with_the_same_plan():
    for problem in recording.draw(DEVICE)[:6]:
        plan = Workload(problem.case, "meta").plan_on(DEVICE)
        assert plan.launch == problem.choice, problem


def test_a_recording_has_rough_and_fine_times(tmp_path, gpu, capsys):
    data = record(tmp_path / "h200.json")
    assert data.header == {"gpu": "NVIDIA H200", "device": DEVICE, "seed": 1}
    assert len(data.problems) == COUNT
    for problem in data.problems:
        times = problem.us
        launches = problem.estimates().keys()
        order = list(map(recording.kernel_of, problem.fastest(len(times))))
        fastest = list(dict.fromkeys(order))[: rows.KERNELS]
        extra = {launch for name in fastest for launch in problem.clusters(name)}
        assert times.keys() == launches | extra
        clusters = {int(one.split("@")[1][0]) for one in times if one.startswith(f"{order[0]}@")}
        row_tiles = problem.plan(f"{order[0]}@1")["tiles_m"]
        assert sorted(clusters) == [n for n in (1, 2, 4) if n <= row_tiles]
        fine = {launch for launch, (_, us) in times.items() if us}
        assert fine == {*problem.fastest(), problem.choice}
        assert problem.loss == pytest.approx(0)
        assert problem.commits == ["abc"]
        # A rough time is 2 % above the fine one here, and `times` takes that off again.
        slowest = max(times, key=lambda launch: times[launch][0])
        assert problem.times[slowest] == pytest.approx(estimate(problem, slowest))
    assert [ms for _, _, ms in gpu.calls] == [rows.ROUGH_MS, rows.ROUGH_MS, rows.FINE_MS] * COUNT
    assert "seed 1" in capsys.readouterr().out


def test_a_recording_resumes_with_what_is_missing(tmp_path, gpu, capsys):
    path = tmp_path / "h200.json"
    record(path, "--minutes", "0")
    assert not path.exists() and "--resume goes on" in capsys.readouterr().out
    data = record(path)
    gpu.calls.clear()
    record(path, "--resume")
    assert gpu.calls == []
    times = data.problems[2].us
    removed = next(iter(times))  # a kernel that is new since
    del times[removed]
    recording.save(data, path)
    resumed = record(path, "--resume")
    assert gpu.calls[0] == (2, 1, rows.ROUGH_MS) and {index for index, _, _ in gpu.calls} == {2}
    assert removed in resumed.problems[2].us
    assert record(path, "--resume", "--problems", "3").problems == resumed.problems
    with pytest.raises(SystemExit, match="seed 1"):
        record(path, "--resume", "--seed", "2")


def test_stored_recordings_are_written_as_they_are(tmp_path):
    for path in sorted(recording.FOLDER.glob("*.json")):
        recording.save(recording.load(path), tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_fit_shows_losses_and_residuals(tmp_path, gpu, capsys):
    path = tmp_path / "h200.json"
    slow = recording.kernel_of(recording.draw(DEVICE)[2].choice)
    gpu.factors[slow] = 1.25
    problems = record(path).problems
    assert max(problem.loss for problem in problems) > 0.01
    assert fit.score(problems) > fit.score(problems[-1:]) >= 0
    capsys.readouterr()
    assert fit.main([str(path), "--worst", "2"]) == 0
    out = capsys.readouterr().out
    assert "fitted: 3 problems: within 3 % of the fastest" in out and slow in out
    of_slow = [one for one in fit.residuals(problems) if recording.kernel_of(one.launch) == slow]
    ratios = {residual.ratio for residual in of_slow}
    assert ratios and all(ratio == pytest.approx(1.25) for ratio in ratios)
    assert max(residual.relative for residual in of_slow) > 1


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize(("dtype", "epilogue"), [("bf16", "bias+gelu_tanh"), ("e4m3", "bias")])
def test_rows_on_a_gpu(monkeypatch, dtype, epilogue):
    facts = torch.cuda.get_device_properties(0)
    card = info.known_device(
        facts.name, 10 * facts.major + facts.minor, facts.multi_processor_count
    )
    if card is None:
        pytest.skip(f"the planner does not know {facts.name}")
    monkeypatch.setattr(rows, "ROUGH_MS", 10.0)
    monkeypatch.setattr(rows, "FINE_MS", 20.0)
    problem = recording.Problem(card["name"], 0, dtype, "TN", 1024, 768, 512, epilogue)
    measured = rows.measure(problem, "abc")
    assert measured.us.keys() >= problem.estimates().keys()
    assert all(rough > 1 for rough, _ in measured.us.values())
    assert rows.is_done(measured)
    work = Workload(problem.case, "cuda")
    for launch in measured.us:
        plan = tcgemm.explain(work.operands.a[0], work.b[0], **work.options, kernel=launch)
        assert name_of(plan) == launch
