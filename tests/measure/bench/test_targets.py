"""Targets of ratios: which cases they are about, and when they are met."""

import re
from dataclasses import replace

import pytest

from benchmarks import targets
from benchmarks.report import tables
from tcgemm.measure.case import Case
from tcgemm.measure.results import Results
from tcgemm.measure.work import FUSED, TORCH, case_fields

from support.bench_fixtures import TARGETS, change, highest, measured


def words(results):
    """{name of a target: its word}."""
    return {name: word for name, *_, word in targets.outcomes(results)}


def test_aims_are_targets_and_limits():
    fused = Case("linear", "bf16", "TN", 4096, 4096, 4096, epilogue="bias+gelu_tanh")
    fused = replace(fused, set="epilogue")
    aims = targets.aims(case_fields(fused, "cuda"))
    assert aims == {TORCH: (1.04, 0.99), FUSED: (1.0, 0.97)}
    assert targets.aims(case_fields(replace(fused, set="squares"), "cuda")) == {}
    assert targets.aims({"set": "models", "task": "train"}) == {}


def test_targets_are_met_missed_or_open():
    results, (first, own, *_) = measured(), TARGETS
    assert words(results) == dict.fromkeys((target.name for target in TARGETS), "met")
    assert "met" not in words(measured(0.9)).values() and words(Results()) == {}
    name, least, mean, *_ = targets.outcomes(results)[0]
    assert (name, least, mean) == (first.name, "1.60", "**1.700** (1.700-1.700)")
    text, passes, count = targets.summary_lines(results)
    assert passes == count == len(TARGETS) == len(text) - 2
    row = next(filter(own.is_about, results.rows))
    change(row, targets.OWN_TN, (0.90, 0.91, 0.91))  # one shape too low
    assert words(results)[own.name] == "missed"
    change(row, targets.OWN_TN, (0.92, 0.95, 0.95))
    assert words(results)[own.name] == "not clear"
    row["repetitions"].pop()
    assert words(results)[own.name] == "not clear so far"
    row["kernel"] = "sm80_s8_s32_64x64x64_w1_s4_tn"  # not the planner's choice now
    assert words(results)[own.name] == "3 of 4 shapes"
    refused = next(filter(first.is_about, results.rows))
    for part in (refused, *refused["repetitions"]):
        part["ratios"] = {}
    assert words(results)[first.name] == "3 of 4 shapes"
    refused["refused"] = {TORCH: "expected N to be a multiple of 128"}
    assert words(results)[first.name] == "met"  # what torch refuses does not count


@pytest.mark.parametrize(
    ("repetitions", "expected"),
    [
        ([[2.2, 2.3, 2.4], [2.21, 2.5, 2.3]], ("**2.300** (2.205-2.398)", "2.300", "met")),
        ([[2.1, 2.3, 2.4], [2.21, 2.5, 2.3]], ("**2.300** (2.154-2.398)", "2.300", "not clear")),
        ([[2.1, 2.1, 2.0], [2.21, 2.2, 2.1]], ("**2.149** (2.049-2.154)", "2.100", "missed")),
        # A clear ratio has one repetition.
        ([[5.0], [2.21, 2.5, 2.3]], ("**3.391** (3.324-3.536)", "2.300", "met")),
    ],
)
def test_the_range_of_a_mean_decides(repetitions, expected):
    target = next(t for t in TARGETS if t.name == "f32 spread, 2048 to 8192 x torch.mm")
    assert targets.reached(target, repetitions) == expected


def test_each_shape_has_to_be_as_fast_as_its_target():
    assert [*words(highest(1.01)).values()] == ["met"] * 4
    results = highest(1.2)
    slow = next(r for r in results.rows if r["m"] == 512 and r["layout"] == "NN")
    change(slow, TORCH, (1.19, 1.44, 1.44))  # below the target in one repetition
    found = words(results)
    assert found.pop("each f32 512 x torch.mm") == "not clear" and {*found.values()} == {"met"}


def test_a_cliff_is_seen():
    def cells(results):
        lines = [re.findall(r"[\w.]+", line) for line in tables.cliffs(results).splitlines()[2:]]
        return {dtype: [float(number) for number in numbers] for dtype, *numbers in lines}

    assert max(map(max, cells(measured()).values())) < 1.02
    steep = cells(measured(spread=0.2))
    assert set(steep) == {"e4m3", "s8", "tf32", "f64"}
    assert set(cells(measured(name="dense"))) == {"bf16"}
    m, n, _, every = steep["s8"]
    assert m > 1.19 and n < 1.02 and every > 1.19
