"""The workload of a case: the call, its check, the baselines and their settings."""

import pytest
import torch

import tcgemm
from benchmarks.experiments import EXPERIMENTS
from benchmarks.experiments import errors as fp32_errors
from tcgemm.measure import baseline, run, workloads
from tcgemm.measure.case import SCALES, Case
from tcgemm.measure.cases import cases as cases_of
from tcgemm.measure.work import baseline_name
from tcgemm.measure.works import work_of

from support.bench_fixtures import run_on_cpu, with_fault


def zero_tile(out):
    out[16:32, 8:16] = 0


def one_off(out):
    out[3, 5] = -out[3, 5] - 1


CASES = [case for case in cases_of("smoke-dtypes") if case.m >= 64]
CASES += [case for case in cases_of("smoke-sparse") if case.op == "mm"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dtype}-{case.epilogue}")
def test_checks_see_faults_in_every_dtype(case):
    ratio, exact = workloads.Workload(case, "cpu").check()
    assert ratio <= 1 and exact
    ratio, exact = with_fault(workloads.Workload(case, "cpu"), zero_tile).check()
    assert not ratio <= 1 and not exact
    ratio, exact = with_fault(workloads.Workload(case, "cpu"), one_off).check()
    assert not exact
    if case.accumulation == "s32":
        assert ratio > 1


@pytest.mark.parametrize(
    ("options", "name", "precision"),
    [
        ({"dtype": "s8"}, "torch._int_mm", None),
        ({"dtype": "e4m3"}, "torch._scaled_mm(use_fast_accum=False)", "promoted"),
        (
            {"dtype": "e5m2", "accumulation": "fast"},
            "torch._scaled_mm(use_fast_accum=True)",
            "fast",
        ),
        ({"dtype": "tf32"}, "torch.mm allow_tf32", "high"),
        ({"dtype": "f32"}, "torch.mm", "highest"),
        ({"dtype": "f64"}, "torch.mm", None),
        ({"dtype": "bf16", "op": "bmm", "batch": 3}, "torch.bmm", None),
        ({"dtype": "f16", "op": "linear", "epilogue": "bias+gelu"}, "torch linear + gelu", None),
    ],
)
def test_baselines_have_names_and_products_a_precision(options, name, precision):
    case = Case(**{"op": "mm", "layout": "TN", "m": 8, "n": 8, "k": 8, **options})
    assert baseline_name(case) == name
    assert workloads.Workload(case, "cpu").options.get("precision") == precision


def test_torch_adds_in_float16_where_tcgemm_does(monkeypatch):
    """In the baseline alone: its float32 sums are timed beside it."""
    matmul, flags, multiply = torch.backends.cuda.matmul, [], torch.mm

    def spied(*arguments, **options):
        flags.append(matmul.allow_fp16_accumulation)
        return multiply(*arguments, **options)

    monkeypatch.setattr(torch, "mm", spied)
    work = work_of(Case("mm", "f16", "TN", 8, 8, 16, accumulation="f16"), "cpu")
    assert work.check()[0] <= 1 and work.options == {"acc_dtype": torch.float16}
    calls = work.candidates()
    assert list(calls) == ["tcgemm", "torch", "torch f32 sums"]
    for call in calls.values():
        call(0)
    assert flags == [True, False] and not matmul.allow_fp16_accumulation
    assert baseline_name(work.case) == "torch.mm allow_fp16_accumulation"
    assert work.names()["torch f32 sums"] == "torch.mm"


@pytest.mark.parametrize("epilogue", SCALES)
def test_scales_lie_as_torch_wants_them(epilogue):
    case = Case("mm", "e4m3", "TN", 300, 260, 512, epilogue=epilogue)
    work = workloads.Workload(case, "cpu")
    shape_a, stride_a, shape_b, stride_b = {
        "tensor-scales": ((), (), (), ()),
        "row-scales": ((300, 1), (1, 1), (1, 260), (260, 1)),
        "128x128-scales": ((300, 4), (1, 300), (4, 3), (1, 4)),
        "1x128-scales": ((300, 4), (1, 300), (4, 260), (260, 1)),
    }[epilogue]
    assert (work.scale_a.shape, work.scale_a.stride()) == (shape_a, stride_a)
    assert (work.scale_b.shape, work.scale_b.stride()) == (shape_b, stride_b)


@pytest.mark.parametrize("case", [c for c in CASES if c.self_baseline in ("TN", "dense")], ids=str)
def test_the_second_baseline_computes_the_same(case):
    work = workloads.Workload(case, "cpu")
    work.call_tcgemm(1)
    expected = work.operands.out[1].double()
    work.operands.poison()
    work.self_baseline()(1)
    torch.testing.assert_close(work.operands.out[1].double(), expected, rtol=2e-2, atol=1e-2)


def test_a_prepared_weight_is_made_of_the_data_it_is_used_with(monkeypatch):
    prepared = []
    monkeypatch.setattr(tcgemm, "prepare", lambda w: prepared.append(w) or w.clone(), raising=False)
    case = next(c for c in cases_of("smoke-dtypes") if c.epilogue == "prepared")
    work = workloads.Workload(case, "cpu")
    ratio, exact = work.check()
    assert 0 < ratio <= 1 and exact and len(prepared) == 4 * work.sets
    for weight, b in zip(work.weights, work.operands.b, strict=True):
        assert torch.equal(weight, b.mT) and weight.data_ptr() != b.data_ptr()
    work.operands.poison()
    work.candidates()["tcgemm, the weight not prepared"](1)
    assert not work.operands.out[1].isnan().any()


@pytest.mark.parametrize(("dtype", "inside"), [("tf32", "tf32"), ("f32", "ieee")])
def test_tf32_is_allowed_or_forbidden_for_one_call_alone(monkeypatch, dtype, inside):
    settings = []
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32, matmul.fp32_precision

    def look():
        settings.append((matmul.fp32_precision, matmul.allow_tf32))

    monkeypatch.setattr(baseline, "reads_tf32", lambda a: a.dtype is torch.float32)
    monkeypatch.setattr(torch, "mm", lambda *_, **__: look())
    monkeypatch.setattr(torch.nn.functional, "linear", lambda a, w, _: look() or a)
    try:
        for setting in ("tf32", "ieee", "none"):
            matmul.allow_tf32 = setting == "tf32"  # torch has two settings, which must agree
            matmul.fp32_precision = setting
            workloads.Workload(Case("mm", dtype, "NN", 8, 8, 8), "cpu").call_baseline(0)
            workloads.Workload(Case("linear", dtype, "TN", 8, 8, 8), "cpu").call_baseline(0)
            if dtype == "f32":
                fp32_errors.torch_mm(torch.ones(1, 1), torch.ones(1, 1))
            assert matmul.fp32_precision == setting
            assert matmul.allow_tf32 == (setting == "tf32")
    finally:
        matmul.allow_tf32, matmul.fp32_precision = before
    calls = 9 if dtype == "f32" else 6
    assert settings == [(inside, inside == "tf32")] * calls


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
    work = work_of(Case("mm", "b1", "TN", 16, 24, 64, epilogue=operation), "cpu")
    assert work.check() == (None, True)
    product = tcgemm.binary_mm
    other = "and" if operation == "xor" else "xor"
    monkeypatch.setattr(tcgemm, "binary_mm", lambda a, b, _, out: product(a, b, other, out=out))
    assert work.check() == (None, False)


@pytest.mark.gpu
def test_torch_has_an_int4_product():
    for m, expected in ((16, True), (512, False)):
        case = Case("mm", "bf16", "TN", m, 256, 1024, epilogue="packed-int4-128")
        calls = work_of(case, "cuda").candidates()
        assert ("torch int4" in calls) == expected
        if expected:
            assert calls["torch int4"](0).shape == (m, 256)
