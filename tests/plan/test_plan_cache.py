"""Plans are remembered by their problem: one that differs in anything else is another one."""

import random
import time

import pytest

from tcgemm.ops import query, tuned

from support.plan_cases import plan

BASE = {"m": 512, "n": 768, "k": 1024}
# One step from BASE each.
CHANGES = (
    {},
    {"m": 513},
    {"n": 776},
    {"k": 1032},
    {"k": 1033},
    {"batch": 2},
    {"dtype": "f16"},
    {"dtype": "e4m3", "precision": "fast"},
    {"dtype": "e4m3", "dtype_b": "e5m2", "precision": "fast"},
    {"dtype": "e4m3"},
    {"dtype": "f32", "precision": "high"},
    {"dtype": "f32", "precision": "medium"},
    {"dtype": "f32"},
    {"dtype": "f32", "terms_b": 2},
    {"dtype": "f64"},
    {"dtype": "s8"},
    {"dtype": "s8", "epilogue": ["zero_a"]},
    {"dtype": "s8", "epilogue": ["zero_b"]},
    {"accumulator": "f16", "dtype": "f16"},
    {"out_dtype": "f32"},
    {"out_dtype": "f16"},
    {"layout": "NN"},
    {"layout": "TT"},
    {"a": (0, 1032, 1)},
    {"a": (0, 1025, 1)},
    {"b": (0, 1, 1032)},
    {"b": (0, 2, 2048)},
    {"out": (0, 1, 512)},
    {"out": (0, 769, 1)},
    {"a_address": 8},
    {"a_address": 16},
    {"b_address": 2},
    {"out_address": 8},
    {"out_address": 4},
    {"alpha": 2.0},
    {"scale_a": "tensor"},
    {"scale_a": "row", "scale_b": "row", "dtype": "e4m3", "precision": "fast"},
    {"scale_a": "1x128", "scale_b": "128x128", "dtype": "e4m3"},
    {"scale_a": "1x128", "scale_b": "1x128", "dtype": "e4m3"},
    {"sparse": "a"},
    {"sparse": "b"},
    *({"epilogue": [word]} for word in ("c", "bias", "residual", "amax", "scale_out", "gelu")),
)
ANY_CHOICE = ("a GPU", "a product", "sm80_bf16_f32_64x64x64_w1_s4_tn@1/1")


@pytest.fixture(autouse=True)
def no_choices():
    yield
    tuned.forget()


def fresh_plan(*sizes, **options):
    """Not from memory, which a change of the tuned choices empties."""
    assert query.ask("_set_tuned", *ANY_CHOICE)
    return plan(*sizes, **options)


@pytest.mark.parametrize("device", ("H200", "A100"))
def test_a_change_of_the_problem_is_another_plan(device):
    """Some of them from memory, since each is asked for several times."""

    def plan_of(change, way=plan):
        try:
            return way(**{**BASE, **change}, device=device)
        except RuntimeError as error:
            return str(error)

    fresh = [plan_of(change, fresh_plan) for change in CHANGES]
    assert len({str(fields) for fields in fresh}) > len(CHANGES) // 2
    order = random.Random(0)
    for _ in range(3):
        for index in order.sample(range(len(CHANGES)), len(CHANGES)):
            assert plan_of(CHANGES[index]) == fresh[index], CHANGES[index]


def test_more_problems_than_are_remembered():
    sizes = [(m, n, k) for m in (64, 128, 4096) for n in range(64, 1024, 64) for k in (512, 520)]
    fresh = [fresh_plan(*size) for size in sizes]
    assert [plan(*size) for size in sizes] == fresh
    assert [plan(*size) for size in reversed(sizes)] == fresh[::-1]


# Few rows and slices of k have the most candidates.
SEARCHED = ({"m": 200, "n": 1024, "k": 4096}, {"m": 1024, "n": 4096, "k": 4096, "dtype": "e4m3"})


def shortest(call, problems):
    """Seconds of the fastest call: other processes disturb some of them."""
    times = []
    for problem in problems:
        start = time.perf_counter()
        call(**problem)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize("sizes", SEARCHED)
def test_a_search_is_short(sizes):
    """Beside the call that asks for a plan, which takes some 100 us. A search of all kernels in all
    divisions of k took as long as 1.5 such calls."""
    new = [sizes | {"m": sizes["m"] + 8 * step} for step in range(100)]
    plan(**sizes)
    assert shortest(plan, new) < 1.5 * shortest(plan, [sizes] * 100)
