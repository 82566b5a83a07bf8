"""The sets of cases, drawn ones too: each case can be built, planned and checked without a GPU."""

import collections
import re

import pytest
import torch

from tcgemm.measure import drawn, results, run, work, workloads
from tcgemm.measure.case import Case
from tcgemm.measure.cases import EPILOGUES, NAMES
from tcgemm.measure.cases import cases as cases_of
from tcgemm.measure.works import work_of


def test_every_set_has_cases_of_its_name():
    for name in NAMES:
        result = cases_of(name)
        assert result and {case.set for case in result} <= {name, f"{name}:sm80", f"{name}@1"}
        keys = [results.key(work.case_fields(case, "cuda")) for case in result]
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", NAMES)
def test_every_case_runs_when_it_is_small(name):
    for case in dict.fromkeys(case.limited(72) for case in cases_of(name)):
        runnable = work_of(case, "cpu")
        ratio, exact = runnable.check()
        assert ratio <= 1 and exact in (True, None), case
        runnable.candidates()["tcgemm"](1)


@pytest.mark.parametrize("name", NAMES)
def test_every_case_has_a_plan_without_a_gpu(name, capsys):
    assert run.main(["--set", name, "--dry-run", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(cases_of(name))
    for line in lines:
        assert re.search(r" (sm(80|90a)_\w+|compress24|prune24)$", line), line


def test_training_checks_see_a_wrong_gradient():
    case = Case("train", "bf16", "TN", 72, 64, 80, epilogue="bias")
    training = work_of(case, "cpu")
    original = training.call_tcgemm
    assert case.flops == 3 * 2 * 72 * 64 * 80
    for index in range(4):

        def wrong(index_of_set, index=index):
            results = original(index_of_set)
            results[index][..., 3:19].zero_()
            return results

        training.call_tcgemm = wrong
        ratio, exact = training.check()
        assert not ratio <= 1 and not exact
    training.call_tcgemm = original
    outputs, torchs = original(1), training.call_baseline(1)
    for result, expected in zip(outputs, torchs, strict=True):
        torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-1)


def test_dtypes_and_layouts_choose_or_replace():
    result = cases_of("squares", ("f32",), ("TT",), "128x256")
    assert {(c.dtype, c.layout, c.kernel, c.set) for c in result} == {
        ("f32", "TT", "128x256", "squares:128x256")
    }
    assert {case.layout for case in cases_of("random", None, ("NN",))} == {"NN"}
    assert {case.dtype for case in cases_of("epilogue", ("f16", "e4m3"))} == {"f16"}
    assert not cases_of("int8", ("bf16",)) and not cases_of("drawn-s8", None, ("NN",))
    assert Case("mm", "bf16", "TN", 4095, 4096, 40).limited(72).size == "79x72x40"
    with pytest.raises(ValueError, match="there are squares"):
        cases_of("circles")


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_every_candidate_of_an_epilogue_runs(epilogue):
    linear = workloads.Workload(Case("linear", "f32", "TN", 24, 16, 40, epilogue=epilogue), "cpu")
    ratio, exact = linear.check()
    assert ratio <= 1 and exact in (True, None)
    for call in linear.candidates().values():
        call(1)


def test_squares_have_two_pairs_each():
    found = cases_of("drawn-squares", seed=5)
    sizes = collections.Counter(case.m for case in found)
    assert sorted(sizes) == [*drawn.SQUARES] and set(sizes.values()) == {2}
    assert len({(case.m, case.layout, case.dtype) for case in found}) == len(found) == 46
    assert {case.set for case in found} == {"drawn-squares@5"}


@pytest.mark.parametrize("name", drawn.FAMILIES)
def test_shapes_of_a_family(name):
    found = cases_of(f"drawn-{name}", seed=5)
    assert len(set(found)) == len(found) == drawn.SHAPES
    for case in found:
        sizes = case.m, case.n, case.k
        step = 16 if case.dtype == "e4m3" else 8
        assert all(size % step == 0 for size in sizes), case
        least, most = (64, 2048) if case.op == "bmm" else (512, 16384)
        assert all(least <= size <= most for size in sizes), case
        assert 2 * case.batch * case.m * case.n * case.k <= drawn.MOST_FLOPS
    assert found == cases_of(f"drawn-{name}", seed=5) != cases_of(f"drawn-{name}", seed=6)


def test_thin_products_have_few_rows_or_a_long_k():
    rows, long = cases_of("drawn-few-rows", seed=5), cases_of("drawn-long-k", seed=5)
    assert (len(set(rows)), len(set(long))) == (40, 20)
    assert all(case.m <= 256 and min(case.n, case.k) >= 512 for case in rows)
    assert all(case.k >= 16 * max(case.m, case.n) for case in long)
    assert rows != cases_of("drawn-few-rows", seed=6)
