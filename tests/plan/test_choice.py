"""The planner's choices beside the recorded time of every kernel, on an H200 and an H100.

`python -m benchmarks rows` records the times on a GPU; these tests need none. Constants of the
planner are fitted to one half of the problems, and the other half is tested.
"""

import dataclasses

import pytest

from benchmarks import fit, recording

from support import plan_cases  # noqa: F401 (skips where the build is for other GPUs)

DEVICES = ("H200", "H100")
# Problems whose choice loses more than fit.WITHIN, and the limit of each; and the share of choices
# that are fit.CLOSE. docs/dev/kernels/cost-models.md says what the model lacks on an H100.
KNOWN = {"H200": {}, "H100": {9: 0.10, 55: 0.115, 69: 0.10, 111: 0.128, 117: 0.084}}
SHARES = {"H200": 15 / 21, "H100": 13 / 22}
# Choices that were not measured: kernels that store by columns, and clusters in both directions,
# came after the recordings. cost-models.md has the times that they were fitted to.
UNMEASURED = {"H200": 43, "H100": 43}


def stored(device):
    """The recording of a GPU; the test is skipped where there is none."""
    path = recording.path_of(device)
    if not path.exists():
        pytest.skip(f"no times are recorded for an {device}: run python -m benchmarks rows on one")
    return recording.load(path)


@pytest.mark.parametrize("device", DEVICES)
def test_a_recording_has_every_problem(device):
    recorded = stored(device)
    assert recorded.header["device"] == device
    problems = [dataclasses.replace(p, commits=[], us={}) for p in recorded.problems]
    assert problems == recording.draw(device, recorded.header["seed"])


@pytest.mark.parametrize("device", DEVICES)
def test_choices_are_near_the_fastest_row(device):
    problems = fit.halves(stored(device))["held out"]
    print("\n".join([fit.quality(problems), *fit.worst(problems, 10)]))
    names = [str(problem) for problem in problems if problem.loss is None]
    few = len(names) <= UNMEASURED[device]
    assert few, f"run python -m benchmarks rows --resume on an {device}: {names}"
    problems = [problem for problem in problems if problem.loss is not None]
    losses = [problem.loss for problem in problems]
    limits = [KNOWN[device].get(problem.index, fit.WITHIN) for problem in problems]
    assert all(loss <= limit for loss, limit in zip(losses, limits, strict=True))
    assert sum(loss <= fit.CLOSE for loss in losses) >= SHARES[device] * len(losses)
