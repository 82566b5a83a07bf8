"""Targets of ratios: which cases they are about, and when they are met."""

import math
from dataclasses import replace

from benchmarks import targets
from tcgemm.measure.case import Case
from tcgemm.measure.results import Results
from tcgemm.measure.work import FUSED, TORCH, case_fields

from support.bench_fixtures import TARGETS, change, highest, measured


def test_aims_are_targets_and_limits():
    fused = Case("linear", "bf16", "TN", 4096, 4096, 4096, epilogue="bias+gelu_tanh")
    fused = replace(fused, set="epilogue")
    aims = targets.aims(case_fields(fused, "cuda"))
    assert aims == {TORCH: (1.04, 0.99), FUSED: (1.0, 0.97)}
    assert targets.aims(case_fields(replace(fused, set="squares"), "cuda")) == {}
    assert targets.aims({"set": "models", "task": "train"}) == {}


def test_targets_are_met_missed_or_open():
    outcomes = targets.outcomes(measured())
    assert len(outcomes) == len(TARGETS) and all(outcome.is_met for outcome in outcomes)
    assert not any(outcome.is_met for outcome in targets.outcomes(measured(0.9)))
    assert targets.outcomes(Results()) == []
    results = measured()
    row = next(filter(TARGETS[1].is_about, results.rows))

    def word():
        return targets.outcomes(results)[1].word

    change(row, targets.OWN_TN, (0.90, 0.91, 0.91))  # one shape too low
    assert word() == "MISS"
    change(row, targets.OWN_TN, (0.92, 0.95, 0.95))
    assert word() == "UNCLEAR"
    row["repetitions"].pop()
    assert word() == "UNCLEAR so far"
    row["kernel"] = "sm80_s8_s32_64x64x64_w1_s4_tn"  # not the planner's choice now
    assert word() == "3 of 4 shapes"
    mean = targets.outcomes(measured())[0].mean
    assert math.isclose(mean, 1.7)


def test_a_shape_that_torch_refuses_does_not_count():
    results, name = measured(), "e4m3 1x128 by 1x128 x torch._scaled_mm"
    about = next(target for target in TARGETS if target.name == name).is_about
    row = next(filter(about, results.rows))
    row["ratios"], row["refused"] = {}, {TORCH: "expected N to be a multiple of 128"}
    for part in row["repetitions"]:
        part["ratios"] = {}
    outcome = next(one for one in targets.outcomes(results) if one.name == name)
    assert (outcome.word, outcome.measured, outcome.expected) == ("PASS", 25, 25)


def test_the_range_of_a_mean_decides():
    target = next(t for t in TARGETS if t.name == "f32 spread, 2048 to 8192 x torch.mm")

    def outcome(repetitions, missing=0):
        return targets.Outcome(target, target.name, 2, repetitions, [], missing)

    result = outcome([[2.2, 2.3, 2.4], [2.21, 2.5, 2.3]])
    assert result.is_met and result.span[0] == math.sqrt(2.2 * 2.21) and result.lowest == 2.3
    assert outcome([[2.1, 2.3, 2.4], [2.21, 2.5, 2.3]]).word == "UNCLEAR"
    assert outcome([[2.1, 2.1, 2.0], [2.21, 2.2, 2.1]]).word == "MISS"
    assert outcome([[5.0], [2.21, 2.5, 2.3]]).is_met  # a clear ratio has one repetition
    assert outcome([[2.2], [2.3]], missing=4).word == "PASS so far"
    assert not outcome([[2.2], [2.3]], missing=4).is_met


def test_each_shape_has_to_be_as_fast_as_its_target():
    outcomes = {outcome.name: outcome for outcome in targets.outcomes(highest(1.01))}
    assert len(outcomes) == 4 and all(outcome.is_met for outcome in outcomes.values())
    results = highest(1.2)
    slow = next(r for r in results.rows if r["m"] == 512 and r["layout"] == "NN")
    change(slow, TORCH, (1.19, 1.44, 1.44))  # below the target in one repetition
    words = {outcome.name: outcome.word for outcome in targets.outcomes(results)}
    assert words.pop("each f32 512 x torch.mm") == "UNCLEAR"
    assert set(words.values()) == {"PASS"}


def test_a_cliff_is_seen():
    assert max(max(s.values()) for s in targets.cliffs(measured()).values()) < 1.02
    steep = targets.cliffs(measured(spread=0.2))
    assert set(steep) == {"e4m3", "s8", "tf32", "f64"}
    assert set(targets.cliffs(measured(name="dense"))) == {"bf16"}
    assert steep["s8"]["M"] > 1.19 and steep["s8"]["N"] < 1.02 and steep["s8"]["all"] > 1.19
    text, passes, count = targets.summary_lines(measured(spread=0.2))
    assert (passes, count) == (len(TARGETS), len(TARGETS) + 4)
    assert sum("cliff" in line and line.endswith("MISS") for line in text) == 4
