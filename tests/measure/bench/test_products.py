"""The sets packed and low_bits: cases of products, and their checks."""

import pytest

import tcgemm
from benchmarks.experiments import EXPERIMENTS
from tcgemm.measure import run, works
from tcgemm.measure.case import Case

from support.bench_fixtures import run_on_cpu


def test_a_run_on_the_cpu_checks_every_product(tmp_path):
    arguments = ("--set", "packed,low_bits", "--max-size", "64", "--repetitions", "1")
    status, rows = run_on_cpu(tmp_path / "cpu.json", *arguments)
    assert status == 0
    of_bits = {row["epilogue"]: row for row in rows if row["dtype"] == "b1"}
    assert set(of_bits) == {"and", "xor", "pm1"} and all(row["exact"] for row in of_bits.values())
    for row in rows:
        names = {"torch", "tcgemm dense" if row["set"] == "packed" else "tcgemm int8"}
        assert set(row["ratios"]) == names
        assert row["exact"] or 0 < row["max_error_ratio"] <= 1


def test_jobs_have_plans_on_hopper():
    for name, words in (("packed", "_packed"), ("low_bits", "_s32_")):
        for job in EXPERIMENTS[name](run.parse(["--set", "smoke"])):
            assert words in job.plan("H200"), job.name


@pytest.mark.parametrize("operation", ["and", "xor", "pm1"])
def test_wrong_bits_are_seen(operation, monkeypatch):
    work = works.work_of(Case("mm", "b1", "TN", 16, 24, 64, epilogue=operation), "cpu")
    assert work.check() == (None, True)
    product = tcgemm.binary_mm
    other = "and" if operation == "xor" else "xor"
    monkeypatch.setattr(tcgemm, "binary_mm", lambda a, b, _, out: product(a, b, other, out=out))
    assert work.check() == (None, False)


@pytest.mark.gpu
def test_torch_has_an_int4_product():
    for m, expected in ((16, True), (512, False)):
        case = Case("mm", "bf16", "TN", m, 256, 1024, epilogue="packed-int4-128")
        calls = works.work_of(case, "cuda").candidates()
        assert ("torch int4" in calls) == expected
        if expected:
            assert calls["torch int4"](0).shape == (m, 256)
