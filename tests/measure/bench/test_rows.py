"""Recordings of the kernels' times: what is drawn, measured and resumed, and what fit says of it.

The times are the planner's estimates, changed on purpose; nothing is measured.
"""

from types import SimpleNamespace

import pytest

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
        plans = {launch: measure.ask(work, launch, DEVICE) for launch in launches}
        return {
            launch: plan.microseconds * scale * fake.factors.get(launch, 1)
            for launch, plan in plans.items()
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


def test_tables_leave_out_kernels_that_are_gone():
    problem = recording.draw(DEVICE)[0]
    problem.us = {problem.choice: [10.0, 10.0], "sm90a_gone@1/1": [10.5, None]}
    text = "\n".join(fit.tables([problem]))
    assert problem.choice.rsplit("_", 1)[0] in text and "gone" not in text
    problem.us = {"sm90a_gone@1/1": [10.5, None]}
    assert "gone" not in "\n".join(fit.tables([problem]))


def test_a_recording_resumes_with_what_is_missing(tmp_path, gpu, capsys):
    path = tmp_path / "h200.json"
    record(path, "--minutes", "0")
    assert not path.exists() and "--resume goes on" in capsys.readouterr().out
    data = record(path)
    assert data.header == {"gpu": "NVIDIA H200", "device": DEVICE, "seed": 1}
    assert [str(problem) for problem in data.problems] == list(map(str, recording.draw(DEVICE)))
    for problem in data.problems:
        assert problem.us.keys() == {*problem.launches} and problem.choice in problem.launches
        order = sorted(problem.us, key=lambda launch: problem.us[launch][0])
        fine = {launch for launch, (_, us) in problem.us.items() if us}
        assert fine == {*order[: measure.FINALISTS], problem.choice}
        # The planner does not search the larger clusters, whose estimates may be lower.
        assert problem.loss < 0.1 and problem.commits == ["abc"]
        # A rough time is 2 % above the fine one here, and `times` takes that off again.
        assert problem.times[order[-1]] == pytest.approx(problem.estimate(order[-1]))
    lengths = [recording.ROUGH_MS, recording.FINE_MS]
    assert [ms for _, _, ms in gpu.calls] == lengths * COUNT
    gpu.calls.clear()
    record(path, "--resume")
    assert gpu.calls == []
    changed = data.problems[2]
    removed = changed.launches[-1]  # a kernel that is new since
    del changed.us[removed]
    recording.save(data, path)
    assert removed in record(path, "--resume").problems[2].us
    assert [(k, ms) for k, _, ms in gpu.calls] == [(changed.k, ms) for ms in lengths]
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
    name, source = "kFill", fit.SOURCE.read_text()
    first = float(fit.constant(source, name)[1])

    def score_of(text):
        return abs(float(fit.constant(text, name)[1]) / first - 1.5)

    found = fit.search([name], score_of, source)
    assert score_of(found) < 0.05
    assert found.replace(fit.constant(found, name)[0], fit.constant(source, name)[0]) == source
    with pytest.raises(SystemExit, match="has no line 'constexpr double kNone"):
        fit.search(["kNone"], lambda text: 0.0, source)
