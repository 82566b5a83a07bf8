"""Recordings of the kernels' times: what is drawn, measured and resumed, and what fit says of it.

The times are the planner's estimates, changed on purpose; nothing is measured.
"""

import math
from types import SimpleNamespace

import pytest
import torch

from benchmarks import fit, recording
from tcgemm.measure import machine, results
from tcgemm.measure.tune import measure
from tcgemm.measure.workloads import Workload

from support import plan_cases  # noqa: F401 (skips where the build is for other GPUs)

DEVICE, COUNT = "H200", 4


@pytest.fixture
def gpu(monkeypatch):
    """A GPU whose launches take their estimates times a factor: {launch: factor}, and the calls."""
    fake = SimpleNamespace(factors={}, calls=[])

    def times(work, launches, ms):
        fake.calls.append((work.case.k, len(launches), ms))
        scale = 1.0 if ms == recording.FINE_MS else 1.02
        plans = [measure.ask(work, launch, DEVICE) for launch in launches]
        return {
            launch: plan.microseconds * scale * fake.factors.get(launch, 1)
            for launch, plan in zip(launches, plans, strict=True)
        }

    monkeypatch.setattr(measure, "why_wrong", lambda work, launch: "")
    monkeypatch.setattr(measure, "times", times)
    monkeypatch.setattr(recording, "Workload", lambda case, device: Workload(case, "meta"))
    monkeypatch.setattr(recording, "PROBLEMS", COUNT)
    monkeypatch.setattr(machine, "known_gpu", lambda device: {"name": DEVICE})
    monkeypatch.setattr(machine, "facts", lambda device: {"gpu": "NVIDIA H200"})
    monkeypatch.setattr(results, "commit", lambda: "abc")
    return fake


def record(path, *options):
    assert recording.main(["--out", str(path), *options]) == 0
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


def test_a_recording_has_rough_and_fine_times(tmp_path, gpu, capsys):
    data = record(tmp_path / "h200.json")
    assert data.header == {"gpu": "NVIDIA H200", "device": DEVICE, "seed": 1}
    assert len(data.problems) == COUNT
    for problem in data.problems:
        assert problem.us.keys() == {*problem.launches} and problem.choice in problem.launches
        order = sorted(problem.us, key=lambda launch: problem.us[launch][0])
        fine = {launch for launch, (_, us) in problem.us.items() if us}
        assert fine == {*order[: measure.FINALISTS], problem.choice}
        assert problem.loss < 0.05 and problem.commits == ["abc"]
        # A rough time is 2 % above the fine one here, and `times` takes that off again.
        assert problem.times[order[-1]] == pytest.approx(problem.estimate(order[-1]))
    assert [ms for _, _, ms in gpu.calls] == [recording.ROUGH_MS, recording.FINE_MS] * COUNT
    assert f"{COUNT} problems of seed 1" in capsys.readouterr().out


def test_a_recording_resumes_with_what_is_missing(tmp_path, gpu, capsys):
    path = tmp_path / "h200.json"
    record(path, "--minutes", "0")
    assert not path.exists() and "--resume goes on" in capsys.readouterr().out
    data = record(path)
    gpu.calls.clear()
    record(path, "--resume")
    assert gpu.calls == []
    changed = data.problems[2]
    removed = changed.launches[-1]  # a kernel that is new since
    del changed.us[removed]
    recording.save(data, path)
    resumed = record(path, "--resume")
    rough, fine = gpu.calls
    assert rough == (changed.k, 1, recording.ROUGH_MS)
    assert fine[::2] == (changed.k, recording.FINE_MS)
    assert removed in resumed.problems[2].us
    with pytest.raises(SystemExit, match="seed 1"):
        record(path, "--resume", "--seed", "2")


def test_stored_recordings_are_written_as_they_are(tmp_path):
    for path in sorted(recording.FOLDER.glob("*.json")):
        recording.save(recording.load(path), tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_fit_shows_losses_and_residuals(tmp_path, gpu, capsys):
    path = tmp_path / "h200.json"
    slow = recording.draw(DEVICE)[2].choice
    gpu.factors[slow] = 1.25
    losses = [problem.loss for problem in record(path).problems]
    assert losses[2] == max(losses) > 0.03
    assert fit.score([path]) == pytest.approx((losses[0] + losses[2]) / 2 + losses[2] / 10)
    assert fit.main([str(path), "--worst", "1"]) == 0
    out = capsys.readouterr().out
    assert "fitted: 2 problems: within 3 % of the fastest on 1 (50 %)" in out
    assert f"choice +{100 * losses[2]:.1f} %: {slow}" in out
    assert "  bf16 NN   " in out and "  bf16 none   " in out


def test_search_keeps_constants_that_lower_the_score():
    name = "kFill"
    source = fit.SOURCE.read_text()
    first = float(fit.constant(source, name)[1])

    def score_of(text):
        return abs(float(fit.constant(text, name)[1]) / first - 1.5)

    found = fit.search([name], score_of, source)
    assert score_of(found) < 0.05
    assert found.replace(fit.constant(found, name)[0], fit.constant(source, name)[0]) == source
    with pytest.raises(SystemExit, match="has no line 'constexpr double kNone"):
        fit.search(["kNone"], lambda text: 0.0, source)


@pytest.mark.gpu
@pytest.mark.sm90
@pytest.mark.parametrize(("dtype", "epilogue"), [("bf16", "bias+gelu_tanh"), ("e4m3", "bias")])
def test_rows_on_a_gpu(monkeypatch, dtype, epilogue):
    card = machine.known_gpu("cuda")
    if card is None:
        pytest.skip(f"the planner does not know {torch.cuda.get_device_name()}")
    monkeypatch.setattr(recording, "ROUGH_MS", 10.0)
    monkeypatch.setattr(recording, "FINE_MS", 20.0)
    problem = recording.Problem(card["name"], 0, dtype, "TN", 1024, 768, 512, epilogue)
    measured = recording.measure(problem, "abc")
    assert measured.us.keys() == {*problem.launches} and recording.is_done(measured)
    assert all(rough > 1 for rough, _ in measured.us.values())
