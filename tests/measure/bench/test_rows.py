"""Recordings of the kernels' times: what is drawn, measured and resumed, and what fit says of it.

The times are the planner's estimates, changed on purpose; nothing is measured.
"""

import bisect
import dataclasses
import math
from collections import Counter
from types import SimpleNamespace

import pytest

from benchmarks import fit, recording
from tcgemm.measure import machine, results
from tcgemm.measure.operands import DTYPES
from tcgemm.measure.tune import measure
from tcgemm.measure.work import TORCH
from tcgemm.measure.works import work_of

from support import plan_cases  # noqa: F401 (skips where the build is for other GPUs)

DEVICE, KIND, COUNT = "H200", "e4m3 promoted", 4


@pytest.fixture
def gpu(monkeypatch):
    """A GPU whose launches take their estimates times a factor: {launch: factor}, and the calls."""
    fake = SimpleNamespace(factors={}, calls=[], refused=set())

    def times(work, launches, ms):
        fake.calls.append((work.case.k, len(launches), ms))
        scale = 1.0 if ms == recording.FINE_MS else 1.02
        least = measure.ask(work, device=DEVICE).microseconds  # of what the planner compares
        found = {}
        for launch in launches:
            if launch != TORCH and launch not in fake.refused:
                us = max(least, measure.ask(work, launch, DEVICE).microseconds)
                found[launch] = us * scale * fake.factors.get(launch, 1)
        return found | ({TORCH: 50.0} if TORCH in launches else {})

    monkeypatch.setattr(recording, "_times", times)
    monkeypatch.setattr(recording, "work_of", lambda case, device: work_of(case, "meta"))
    few = dataclasses.replace(recording.KINDS[KIND], count=COUNT)
    monkeypatch.setattr(recording, "KINDS", {KIND: few})
    monkeypatch.setattr(machine, "known_gpu", lambda device: {"name": DEVICE})
    monkeypatch.setattr(machine, "facts", lambda device: {"gpu": "NVIDIA H200"})
    monkeypatch.setattr(results, "commit", lambda: "abc")
    return fake


def record(path, *options):
    assert recording.main(["--out", str(path), *options]) == 0
    return recording.load(path)


@pytest.mark.parametrize("kind", recording.KINDS)
def test_drawn_problems_are_in_every_stratum_that_they_can_have(kind):
    drawn = [problem for problem in recording.draw(DEVICE) if problem.kind == kind]
    fields = recording.KINDS[kind]
    assert len(drawn) == fields.count
    assert {problem.layout for problem in drawn} == {*fields.layouts}
    for sizes, ends in (("m", recording.SIZES), ("n", recording.SIZES), ("k", recording.DEPTHS)):
        strata = Counter(bisect.bisect_right(ends, getattr(problem, sizes)) for problem in drawn)
        assert len(strata) >= min(len(ends) - 2, fields.count // 4), (sizes, strata)
    for problem in drawn:
        assert 2 * problem.m * problem.n * problem.k <= fields.most_flops
    itemsize = DTYPES[fields.dtype].itemsize
    along_k = {math.gcd(p.k * itemsize, 128) for p in drawn if p.layout == "TN"}
    wanted = {min(128, pitch) for pitch in fields.pitches}
    assert along_k == wanted if len(fields.layouts) == 1 else along_k <= wanted


def test_the_launches_are_the_nearest_and_some_others():
    problem = recording.draw(DEVICE)[0]
    launches = problem.launches()
    assert launches[0] == problem.choice and launches == recording.draw(DEVICE)[0].launches()
    estimates = [problem.estimate(launch) for launch in launches[1 : 1 + recording.NEAREST]]
    assert estimates == sorted(estimates) and len(estimates) == recording.NEAREST
    others = launches[1 + recording.NEAREST :]
    assert len(others) == recording.DRAWN
    assert all(
        estimates[-1] <= problem.estimate(launch) <= recording.NEAR * estimates[0]
        for launch in others
    )


def test_tables_leave_out_kernels_that_are_gone():
    problem = recording.draw(DEVICE)[0]
    problem.us = {problem.choice: [10.0, 10.0], "sm90a_gone@1/1": [10.5, None]}
    text = "\n".join(fit.tables([problem]))
    assert problem.choice.rsplit("_tn", 1)[0] in text and "gone" not in text
    problem.us = {"sm90a_gone@1/1": [10.5, None]}
    assert "gone" not in "\n".join(fit.tables([problem]))


def test_a_recording_is_planned_measured_and_resumed(tmp_path, gpu, capsys):
    path = tmp_path / "h200.json"
    with pytest.raises(SystemExit, match="has no problems: python -m benchmarks rows --plan H200"):
        record(path)
    planned = record(path, "--plan", DEVICE)
    assert f"{COUNT} of {COUNT} problems are to be measured" in capsys.readouterr().out
    assert list(map(str, planned.problems)) == list(map(str, recording.draw(DEVICE)))
    assert all(recording.lacks_times(problem) for problem in planned.problems)
    record(path, "--minutes", "0")
    assert not gpu.calls and "call it again to go on" in capsys.readouterr().out
    data = record(path)
    expected = {"gpu": "NVIDIA H200", "device": DEVICE, "seed": 1, "commits": ["abc"]}
    assert data.header == expected
    for before, problem in zip(planned.problems, data.problems, strict=True):
        assert problem.us.keys() == before.us.keys() and problem.torch == 50.0
        order = sorted(problem.us, key=lambda launch: problem.us[launch][0])
        fine = {launch for launch, (_, us) in problem.us.items() if us}
        assert fine == {*order[: recording.FINALISTS], problem.choice}
        assert problem.loss == 0
        # A rough time is 2 % above the fine one here, and `times` takes that off again.
        slowest = order[-1]
        assert problem.times[slowest] == pytest.approx(problem.us[slowest][0] / 1.02)
    lengths = [2 * recording.ROUGH_MS, recording.FINE_MS]
    assert [ms for _, _, ms in gpu.calls] == lengths * COUNT
    gpu.calls.clear()
    record(path)
    assert gpu.calls == []
    changed = data.problems[2]
    del changed.us[changed.choice]  # as if the planner had another choice now
    recording.save(data, path)
    record(path, "--plan", DEVICE)
    assert changed.choice in record(path).problems[2].us
    assert gpu.calls[0] == (changed.k, 1, lengths[0]) and len(gpu.calls) == 2
    with pytest.raises(SystemExit, match="seed 1"):
        record(path, "--plan", DEVICE, "--seed", "2")


def test_launches_that_cannot_be_timed_are_left_out(tmp_path, gpu, capsys):
    path = tmp_path / "h200.json"
    planned = record(path, "--plan", DEVICE).problems
    choice, launches = planned[0].choice, planned[1].us
    gpu.refused = {choice, *launches}
    first, second, *_ = record(path).problems
    assert choice not in first.us and first.us and first.loss is None
    assert second.us == {} and f"{second!s:48} no launch could be timed" in capsys.readouterr().out


def test_stored_recordings_are_written_as_they_are(tmp_path):
    for path in sorted(recording.FOLDER.rglob("*.json")):
        recording.save(recording.load(path), tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_fit_shows_losses_and_residuals(tmp_path, gpu, capsys):
    path = tmp_path / "h200.json"
    slow = recording.draw(DEVICE)[2].choice
    gpu.factors[slow] = 1.25
    record(path, "--plan", DEVICE)
    losses = [problem.loss for problem in record(path).problems]
    assert losses[2] == max(losses) > 0.03
    assert fit.score([path]) == pytest.approx((losses[0] + losses[2]) / 2 + losses[2] / 10)
    assert fit.main([str(path), "--worst", "1"]) == 0
    out = capsys.readouterr().out
    assert "fitted: 2 problems: within 3 % of the fastest on 1 (50 %)" in out
    assert f"choice +{100 * losses[2]:.1f} %: {slow}" in out
    assert f"  {KIND} TN   " in out and f"  {KIND} none   " in out


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
