"""The sets of cases: every case can be built, planned and checked without a GPU."""

import re

import pytest
import torch

from benchmarks import RESULTS, targets
from tcgemm.bench import results_file, run, workloads
from tcgemm.bench.case import Case
from tcgemm.bench.cases import EPILOGUES, GROUPS, NAMES
from tcgemm.bench.cases import cases as cases_of


def test_every_set_has_cases_of_its_name():
    for name in NAMES:
        found = cases_of(name)
        assert found and {case.set for case in found} <= {name, f"{name}:sm80", f"{name}@1"}
        keys = [results_file.key(workloads.as_row(case, "gpu", {})) for case in found]
        assert len(set(keys)) == len(keys)


def small(case):
    """The same kind of case for two CPU cores."""
    return case.limited(72)


@pytest.mark.parametrize("name", NAMES)
def test_every_case_runs_when_it_is_small(name):
    for case in dict.fromkeys(map(small, cases_of(name))):
        work = run.workload(case, "cpu")
        ratio, exact = work.check()
        assert ratio <= 1 and exact in (True, None), case
        work.candidates()["tcgemm"](1)


@pytest.mark.parametrize("name", NAMES)
def test_every_case_has_a_plan_without_a_gpu(name, capsys):
    assert run.main(["--set", name, "--dry-run", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(cases_of(name))
    for line in lines:
        assert re.search(r" (sm(80|90a)_\w+|compress24|prune24)$", line), line


def test_small_cases_stay_ragged():
    case = Case("mm", "bf16", "TN", 4095, 4096, 40)
    assert small(case).size == "79x72x40"


def test_random_cases_are_the_same_in_each_run():
    assert cases_of("random") == cases_of("random")
    assert {case.layout for case in cases_of("random", None, ("NN",))} == {"NN"}


def test_only_cases_with_a_target():
    options = run.parse(["--set", "all", "--targets", "--device", "cuda"])
    chosen = run.chosen_cases(options, targets)
    assert {case.set for case in chosen} >= {"squares", "squares:sm80", "int8", "sparse-mm"}
    assert {case.size for case in chosen if case.set == "int8"} == {
        "2048^3",
        "4096^3",
        "8192^3",
        "16384^3",
    }


def test_training_checks_see_a_wrong_gradient():
    case = Case("train", "bf16", "TN", 72, 64, 80, epilogue="bias")
    work = run.workload(case, "cpu")
    right = work.call_tcgemm
    assert case.flops == 3 * 2 * 72 * 64 * 80
    for index in range(4):

        def wrong(given, index=index):
            results = right(given)
            results[index][..., 3:19].zero_()
            return results

        work.call_tcgemm = wrong
        ratio, exact = work.check()
        assert not ratio <= 1 and not exact
    work.call_tcgemm = right
    ours, torchs = right(1), work.call_baseline(1)
    for one, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-1)


def test_targets_of_single_cases():
    found = {
        (case.dtype, case.layout, case.m, case.kernel, case.target)
        for case in cases_of("squares")
        if case.target
    }
    even = [
        (dtype, layout, size, "", 0.93)
        for dtype in ("bf16", "f16")
        for layout in ("TN", "NN")
        for size in (2048, 4096, 8192)
    ]
    ragged = [("bf16", "TN", size, "", 3.0) for size in (4095, 8191)]
    assert found == {*even, *ragged, ("bf16", "TN", 4096, "sm80", 0.55)}


def test_filters_and_forced_kernels():
    found = cases_of("squares", ("f32",), ("TT",), "128x256")
    assert {(c.dtype, c.layout, c.kernel, c.set) for c in found} == {
        ("f32", "TT", "128x256", "squares:128x256")
    }
    with pytest.raises(ValueError, match="there are squares"):
        cases_of("circles")


def test_stored_rows_are_of_the_sets():
    for path in RESULTS.glob("*.json"):
        for row in results_file.load(path)["rows"]:
            assert results_file.set_of(row).split(":")[0] in NAMES, row


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogue_and_host_cases_run(epilogue):
    case = Case("linear", "f32", "TN", 24, 16, 40, epilogue=epilogue)
    work = workloads.Workload(case, "cpu")
    ratio, exact = work.check()
    assert ratio <= 1 and exact in (True, None)
    for call in work.candidates().values():
        call(1)
    plain = workloads.Workload(Case("bmm", "bf16", "NT", 9, 8, 7, 3, graph=False), "cpu")
    ratio, exact = plain.check()
    assert ratio <= 1 and exact is True
    plain.candidates()["tcgemm"](0)
    assert workloads.baseline_name(plain.case) == "torch.bmm"


def test_cases_of_the_dtypes():
    names = GROUPS["dtypes"]
    cases = [case for name in names for case in cases_of(name)]
    assert {case.dtype for case in cases} == {"e4m3", "s8", "tf32", "f64", "f32"}
    accumulations = {(case.dtype, case.accumulation) for case in cases}
    assert ("s8", "s32") in accumulations and ("f64", "f64") in accumulations
    assert {("e4m3", "fast"), ("e4m3", "promoted")} <= accumulations
    assert set(GROUPS["all"]) == {*GROUPS["dense"], *names, *GROUPS["sparse"]}
    assert all("smoke" not in name and "drawn" not in name for name in GROUPS["all"])
    assert "doc000" not in GROUPS["all"]


def test_published_sizes():
    cases = cases_of("doc000")
    assert len(cases) == 61 * 7 * 2
    assert {(case.dtype, case.layout) for case in cases} == {("f16", "TN")}
    sizes = [(case.m, case.n, case.k) for case in cases if case.accumulation == "f16"]
    assert sizes[0] == (1024, 1024, 1024) and sizes[60] == (16384, 16384, 16384)
    assert {(2048, 1024, 1024), (1280, 5120, 1280), (16384, 16384, 65536)} <= set(sizes)
    assert sorted(sizes) == sorted(
        (case.m, case.n, case.k) for case in cases if case.accumulation == "f32"
    )
    assert {case.accumulation for case in cases_of("doc000", ("bf16",))} == {"f32"}


def test_cases_have_targets_and_what_users_have():
    cases = cases_of("highest")
    plain = {case.m for case in cases if case.epilogue == "none" and case.op == "mm"}
    assert plain >= {512, 1024, 2048, 3072, 4096, 6144, 8192, 4095}
    spread = {(case.m, case.layout) for case in cases if case.epilogue == "spread"}
    assert spread == {(m, layout) for m in (2048, 4096, 8192) for layout in ("TN", "NN")}
    kept = {(case.m, case.n, case.k) for case in cases if case.epilogue == "prepared"}
    assert kept == {(m, n, 4096) for m in (16, 256, 4096) for n in (4096, 14336)}
    assert any(case.op == "bmm" for case in cases) and any(case.k > 8192 for case in cases)
    assert {case.dtype for case in cases} == {"f32"}
    assert len(cases) < 40  # four minutes
    assert cases_of("highest", ("bf16",)) == []
    assert {case.layout for case in cases_of("highest", None, ("NN",))} == {"NN"}
