"""Targets of ratios: which cases they are about, and when they are met."""

import math

from benchmarks import targets
from tcgemm.bench import results_file, run
from tcgemm.bench.cases import cases as cases_of

from support.bench_fixtures import TARGETS, highest, measured


def test_targets_and_their_shapes():
    found = {target.name: (target.least, target.expected()) for target in TARGETS}
    assert found == {
        "s8 TN x torch._int_mm": (1.6, 4),
        "s8 NN x our own TN": (0.93, 4),
        "e4m3 fast x torch._scaled_mm": (1.02, 4),
        "e4m3 promoted x torch._scaled_mm": (1.02, 4),
        "e4m3 fast, row scales x a scale a tensor": (0.98, 4),
        "e4m3 fast, row scales x torch._scaled_mm": (1.03, 4),
        "e4m3 promoted, row scales x a scale a tensor": (0.98, 4),
        "e4m3 promoted, row scales x torch._scaled_mm": (1.03, 4),
        "e4m3 1x128 by 128x128 x torch._scaled_mm": (1.12, 4),
        "tf32 TN and NN x torch.mm": (1.08, 6),
        "f64 TN and NN x torch.mm": (1.04, 8),
        "each f32 2048 to 8192 x torch.mm": (4.0, 10),
        "each f32 1024 x torch.mm": (2.0, 2),
        "each f32 512 x torch.mm": (1.2, 2),
        "each f32 spread, 2048 to 8192 x torch.mm": (2.2, 6),
    }


def test_targets_are_met_missed_or_open():
    good = targets.outcomes(measured())
    assert len(good) == len(TARGETS) and all(outcome.met for outcome in good)
    assert not any(outcome.met for outcome in targets.outcomes(measured(0.9)))
    assert targets.outcomes(results_file.empty()) == []
    results = measured()
    about = TARGETS[2].is_about
    mine = [r for r in results["rows"] if about(r)]
    mine[0]["ratio"] = 0.94  # one shape too low
    assert targets.outcomes(results)[2].word == "MISS"
    mine[0]["ratio"] = None  # refused, or not measured
    assert targets.outcomes(results)[2].word == "3 of 4 shapes"
    mean = targets.outcomes(measured())[0].mean
    assert math.isclose(mean, 1.7)


def test_each_shape_has_to_be_as_fast_as_its_target():
    found = {outcome.name: outcome for outcome in targets.outcomes(highest(1.01))}
    assert len(found) == 4 and all(outcome.met for outcome in found.values())
    results = highest(1.2)
    slow = next(r for r in results["rows"] if r["m"] == 6144 and r["layout"] == "NN")
    slow["ratio"] = 3.98  # below the target, though the mean is not
    words = {outcome.name: outcome.word for outcome in targets.outcomes(results)}
    assert words.pop("each f32 2048 to 8192 x torch.mm") == "MISS"
    assert set(words.values()) == {"PASS"}


def test_a_cliff_is_seen():
    assert max(max(s.values()) for s in targets.cliffs(measured()).values()) < 1.02
    steep = targets.cliffs(measured(spread=0.2))
    assert set(steep) == {"e4m3", "s8", "tf32", "f64"}
    assert set(targets.cliffs(measured(name="dense"))) == {"bf16"}
    assert steep["s8"]["M"] > 1.19 and steep["s8"]["N"] < 1.02 and steep["s8"]["all"] > 1.19
    text, met, count = targets.summary_lines(measured(spread=0.2))
    assert (met, count) == (len(TARGETS), len(TARGETS) + 4)
    assert sum("cliff" in line and line.endswith("MISS") for line in text) == 4


def test_targets_say_pass_or_miss():
    case = next(case for case in cases_of("squares") if case.target == 0.93)
    assert run.outcome(case, {"ratio": 0.94}).strip() == "PASS (0.93)"
    assert run.outcome(case, {"ratio": 0.92}).strip() == "MISS (0.93)"
    assert run.outcome(cases_of("llm")[0], {"ratio": 0.5}) == ""
