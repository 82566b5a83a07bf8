"""Recordings of every kernel's time: what is drawn, measured and resumed, and what fit says of it.

The times are the planner's estimates, changed on purpose; nothing is measured.
"""

import collections

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
    estimates = recording.runnable(DEVICE, problem)
    of_kernel = {recording.kernel_of(candidate): us for candidate, us in estimates.items()}
    return estimates.get(launch, 1.5 * of_kernel[recording.kernel_of(launch)])


def row_tiles(problem, kernel):
    return recording.plan(DEVICE, problem, f"{kernel}@1")["tiles_m"]


@pytest.fixture
def gpu(monkeypatch):
    """A GPU whose rows take their estimates times a factor: {kernel: factor}, and the calls."""
    fake = collections.namedtuple("Gpu", "factors calls")({}, [])

    def time_launches(problem, launches, ms):
        fake.calls.append((problem["index"], len(launches), ms))
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
    problems = recording.draw()
    assert len(problems) == 120 and problems == recording.draw() != recording.draw(2)
    for problem in problems:
        sizes = [problem[name] for name in "mnk"]
        step = 16 if problem["dtype"] == "e4m3" else 8
        assert all(64 <= size <= 16384 and size % step == 0 for size in sizes)
        assert 2.0 * sizes[0] * sizes[1] * sizes[2] <= 1.5e12
        assert problem["layout"] == "TN" or problem["dtype"] != "e4m3"
    assert {problem["dtype"] for problem in problems} == {"bf16", "f16", "e4m3"}
    assert {problem["layout"] for problem in problems} == {"TN", "NN", "TT", "NT"}
    assert {problem["epilogue"] for problem in problems} == {"", "bias", "bias+gelu_tanh"}
    assert 50 <= sum(map(recording.is_held_out, problems)) <= 70


@pytest.mark.parametrize("device", ["H200", "H100"])
def test_every_choice_is_a_row_that_is_measured(device):
    for problem in recording.draw():
        assert recording.choice(device, problem) in recording.runnable(device, problem), problem


def test_no_kernel_is_hidden_by_a_longer_name():
    for problem in recording.draw():
        assert not recording.hidden(DEVICE, problem), problem


def test_a_problem_is_a_case_with_the_same_plan():
    for problem in recording.draw()[:6]:
        plan = Workload(recording.case_of(problem), "meta").plan_on(DEVICE)
        assert plan.launch == recording.choice(DEVICE, problem), problem


def test_a_recording_has_rough_and_fine_times(tmp_path, gpu, capsys):
    data = record(tmp_path / "h200.json")
    assert data["header"] == {"gpu": "NVIDIA H200", "device": DEVICE, "seed": 1}
    assert len(data["problems"]) == COUNT
    for problem in data["problems"]:
        times = problem["us"]
        launches = recording.runnable(DEVICE, problem).keys()
        order = list(map(recording.kernel_of, recording.fastest(problem, len(times))))
        fastest = list(dict.fromkeys(order))[: rows.KERNELS]
        extra = {one for name in fastest for one in recording.clusters(DEVICE, problem, name)}
        assert times.keys() == launches | extra
        clusters = {int(one.split("@")[1][0]) for one in times if one.startswith(f"{order[0]}@")}
        assert sorted(clusters) == [n for n in (1, 2, 4) if n <= row_tiles(problem, order[0])]
        fine = {launch for launch, (_, us) in times.items() if us}
        assert fine == {*recording.fastest(problem), recording.choice(DEVICE, problem)}
        assert recording.loss(problem, recording.choice(DEVICE, problem)) == pytest.approx(0)
        assert problem["commits"] == ["abc"]
        # A rough time is 2 % above the fine one here, and `times` takes that off again.
        slowest = max(times, key=lambda launch: times[launch][0])
        assert recording.times(problem)[slowest] == pytest.approx(estimate(problem, slowest))
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
    times = data["problems"][2]["us"]
    removed = next(iter(times))  # a kernel that is new since
    del times[removed]
    recording.save(data, path)
    resumed = record(path, "--resume")
    assert gpu.calls[0] == (2, 1, rows.ROUGH_MS) and {index for index, _, _ in gpu.calls} == {2}
    assert removed in resumed["problems"][2]["us"]
    with pytest.raises(SystemExit, match="seed 1"):
        record(path, "--resume", "--seed", "2")


def test_fit_shows_losses_and_residuals(tmp_path, gpu, capsys):
    path = tmp_path / "h200.json"
    slow = recording.kernel_of(recording.choice(DEVICE, recording.draw()[2]))
    gpu.factors[slow] = 1.25
    data = record(path)
    choices = fit.choices(DEVICE, data["problems"])
    assert max(choice.loss for choice in choices) > 0.01
    assert fit.score(choices) > fit.score(choices[-1:]) >= 0
    capsys.readouterr()
    assert fit.main([str(path), "--worst", "2"]) == 0
    out = capsys.readouterr().out
    assert "fitted: 3 problems: within 3 % of the fastest" in out and slow in out
    residuals = fit.residuals(DEVICE, data["problems"])
    of_slow = [one for one in residuals if recording.kernel_of(one.launch) == slow]
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
    sizes = {"m": 1024, "n": 768, "k": 512}
    problem = {"index": 0, "dtype": dtype, "layout": "TN", **sizes, "epilogue": epilogue}
    data = rows.measure(rows.known_gpu(), {**problem, "commits": [], "us": {}}, "abc")
    assert data["us"].keys() >= recording.runnable(card["name"], problem).keys()
    assert all(rough > 1 for rough, _ in data["us"].values())
    assert rows.is_done(card["name"], data)
    work = Workload(recording.case_of(problem), "cuda")
    for launch in data["us"]:
        plan = tcgemm.explain(work.operands.a[0], work.b[0], **work.options, kernel=launch)
        assert name_of(plan) == launch
