"""tcgemm.tune with a timer that needs no GPU: products, candidates, choice, table, errors."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import tcgemm
from tcgemm.cli import tune as command
from tcgemm.measure import machine, name_of, works
from tcgemm.measure.case import Case
from tcgemm.measure.operands import DTYPES
from tcgemm.measure.tune import api, measure
from tcgemm.measure.workloads import Workload
from tcgemm.ops import tuned

from support.error_asserts import error_message
from support.plan_cases import H200, plan

GPU = "NVIDIA H200"
SHAPE = (16, 4096, 14336)
CASE = Case("mm", "bf16", "TN", *SHAPE)


def ask(case=CASE, kernel=None):
    return measure.ask(works.work_of(case, "meta"), kernel, H200)


def others(case=CASE):
    """The candidates beside the planned kernel."""
    return measure.candidates(works.work_of(case, "meta"), ask(case), H200)


@pytest.fixture
def fake_gpu(monkeypatch):
    """A GPU whose tensors have no memory. `us` gives the time of a kernel and `wrong` its fault;
    `asked` has what was timed."""
    fake = SimpleNamespace(wrong={}, asked=[])
    fake.us = lambda kernel: 8.0 if "64x64x64_w1_s12" in kernel else 10.0

    def times(work, kernels, ms, needed):
        fake.asked.append((list(kernels), ms))
        return {kernel: fake.us(kernel) for kernel in kernels}

    monkeypatch.setattr(measure, "why_wrong", lambda work, kernel: fake.wrong.get(kernel, ""))
    monkeypatch.setattr(measure, "times", times)
    monkeypatch.setattr(api, "gpu_of", lambda device: torch.device("meta"))
    monkeypatch.setattr(machine, "known_gpu", lambda gpu: {"name": H200})
    monkeypatch.setattr(machine, "gpu_name", lambda gpu: GPU)
    return fake


def test_candidates_have_clusters_and_slices():
    case = Case("mm", "bf16", "TN", 32, 4096, 14336)
    first, estimates = ask(case), others(case)
    assert len(estimates) <= measure.MOST and name_of(first) not in estimates
    assert {name.rpartition("/")[2] for name in estimates} >= {"1", "2", "4"}
    assert any(name.endswith("c") for name in estimates)
    assert len({name.partition("@")[0] for name in estimates}) >= 5  # not one row's slices alone
    limit = measure.FACTOR * min(first.microseconds, *estimates.values())
    for name, us in estimates.items():
        assert us <= limit and name_of(ask(case, name)) == name
    # Those of float8 have the same bits.
    case = Case("mm", "e4m3", "TN", 16, 4096, 4096, accumulation="fast", epilogue="tensor-scales")
    for kernel in others(case):
        assert kernel.startswith("sm90a") and "_promoted" not in kernel


@pytest.mark.parametrize("layout", ("TN", "NN"))
def test_candidates_have_swapped_kernels_and_larger_clusters(layout):
    """Each orientation of a row is a kernel of its own. Slices of k have clusters of up to 4."""
    case = Case("mm", "bf16", layout, 1000, 1000, 1000)
    names = list(others(case))
    for name in names:
        plan = ask(case, name)
        assert name_of(plan) == name and tuned.KERNEL.fullmatch(name)
        assert name.endswith("^T") == (plan.store_path == "tma_columns" and plan.swap_ab)
    swapped = [name for name in names if name.endswith("^T")]
    assert len(swapped) >= 5 and len(names) - len(swapped) >= 5
    clusters = {name.partition("@")[2].partition("/")[0] for name in names}
    assert clusters >= {"2x2"} and clusters & {"8", "4x2", "2x4", "1x2", "1x4", "1x8"}


def test_wide_results_and_sums_of_slices_have_no_swapped_candidates():
    for options in ({"out_dtype": torch.float32}, {"m": 16, "k": 65536}):
        fields = {"m": 512, "n": 512, "k": 4096} | {k: v for k, v in options.items() if k in "mk"}
        work = works.work_of(Case("mm", "bf16", "TN", **fields), "meta")
        if "out_dtype" in options:
            work.options = {**work.options, **options}
        names = measure.candidates(work, measure.ask(work, None, H200), H200)
        assert not any("^T" in name and not name.endswith("/1^T") for name in names)
        assert "out_dtype" not in options or not any(name.endswith("^T") for name in names)


def test_the_fastest_right_kernel_is_chosen(fake_gpu):
    planned, names = name_of(ask()), list(others())
    fast, wrong = names[3], names[7]
    fake_gpu.us = lambda kernel: {fast: 8.0, wrong: 5.0, planned: 10.4}.get(kernel, 10.0)
    fake_gpu.wrong = {wrong: "it is wrong"}
    result = tcgemm.tune(SHAPE, seconds=0.3, progress=False)
    (row,) = result.rows
    expected = {"kernel": fast, "us": 8.0, "planned": planned, "planned_us": 10.4, "stored": True}
    assert row | expected == row and "1.300" in str(result)
    assert row["wrong"] == {wrong: "it is wrong"} and row["candidates"] == len(names) + 1
    assert f"left out: {wrong}: it is wrong" in str(result)
    (rough, rough_ms), (last, last_ms) = fake_gpu.asked
    assert wrong not in rough and len(rough) == len(names) and rough_ms == measure.ROUGH_MS
    assert {planned, fast} <= set(last) and len(last) <= 4 and last_ms == 300.0


@pytest.mark.parametrize(("us", "is_stored"), [(10.0, False), (9.81, False), (9.79, True)])
def test_a_choice_gains_more_than_the_noise(fake_gpu, us, is_stored):
    name = next(iter(others()))
    fake_gpu.us = lambda kernel: us if kernel == name else 10.0
    (row,) = tcgemm.tune(SHAPE, progress=False).rows
    assert row["stored"] is is_stored and (row["kernel"] == row["planned"]) is not is_stored


def test_a_product_that_fails_has_the_reason(fake_gpu, monkeypatch):
    fake_gpu.wrong = {name_of(ask()): "its error is 7 times the bound"}
    (row,) = tcgemm.tune(SHAPE, progress=False).rows
    assert row["us"] is None
    assert row["why"] == "the planned kernel cannot be used: its error is 7 times the bound"

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    fake_gpu.us = lambda kernel: torch.empty(2).view(3)
    result = tcgemm.tune(SHAPE, progress=False)
    reason = "shape '[3]' is invalid for input of size 2"
    assert result.rows[0]["why"] == reason and reason in str(result)
    assert not tuned.paths()


def test_a_result_with_nan_or_a_large_error_is_wrong(monkeypatch):
    work = Workload(Case("mm", "f32", "TN", 16, 8, 32), "cpu")
    exact = torch.mm(work.operands.a[0], work.operands.b[0])
    for factor, text in ((1, ""), (1.5, "times the bound"), (math.nan, "nan")):
        product = exact * factor
        monkeypatch.setattr(
            work, "call_kernel", lambda kernel, index, r=product: work.operands.out[index].copy_(r)
        )
        why = measure.why_wrong(work, "any")
        assert text in why and bool(why) == bool(text)
    monkeypatch.setattr(work, "call_kernel", lambda kernel, index: None)  # it stores nothing
    assert "nan" in measure.why_wrong(work, "any")


KINDS = (
    *((dtype, {}) for dtype in ("bf16", "f16", "tf32", "f64", "s8")),
    *(("e4m3", {"epilogue": f"{scales}-scales"}) for scales in ("row", "128x128")),
    ("e5m2", {"epilogue": "tensor-scales", "accumulation": "fast"}),
    ("bf16", {"batch": 3, "op": "bmm", "layout": "NN"}),
    *((dtype, {"epilogue": "sparse"}) for dtype in ("bf16", "tf32", "s8")),
)


@pytest.mark.parametrize(("dtype", "options"), KINDS, ids=str)
def test_every_kind_of_product_is_checked_and_timed(dtype, options):
    fields = {"op": "mm", "dtype": dtype, "layout": "TN", "m": 16, "n": 64, "k": 128, **options}
    work = Workload(Case(**fields), "cpu")  # which takes every name of a kernel
    assert not measure.why_wrong(work, "any")
    assert set(measure.times(work, ["one", "two"], 1.0)) == {"one", "two"}
    assert measure.ask(work, device=H200).product


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def test_layers_of_a_model(fake_gpu, monkeypatch):
    nn, sizes = tcgemm.nn, (64, 128)
    of_rows = {"scale_a": meta(16, 1), "scale_b": meta(1, 128)}
    of_blocks = {"scale_a": meta(16, 1), "scale_b": meta(1, 1)}
    of_tensors = {"scale_a": meta(), "scale_b": meta()}
    bf16 = {"dtype": torch.bfloat16}
    layers = (  # and the dtype and the options of the product that each calls
        (torch.nn.Linear(*sizes, **bf16), "bf16", {"bias": meta(128, **bf16)}),
        (nn.Linear(*sizes, **bf16, activation="gelu"), "bf16", {"activation": "gelu"}),
        (nn.QuantLinear(*sizes), "e4m3", of_rows),
        (nn.QuantLinear(*sizes, granularity="128x128"), "e4m3", of_blocks),
        (nn.QuantLinear(*sizes, dtype=torch.int8), "s8", of_rows | {"out_dtype": torch.bfloat16}),
        (nn.Float8Linear(*sizes), "e4m3", of_tensors),
        (nn.SparseLinear24(*sizes, dtype=torch.float16), "f16", {}),
    )
    expected = []
    for layer, dtype, options in layers:
        a, b = (meta(size, 64, dtype=DTYPES[dtype]) for size in (16, 128))
        if isinstance(layer, nn.SparseLinear24):
            a, b = torch.zeros(16, 64).half(), layer.weight
        expected.append(tcgemm.explain(a, b.t(), **options, device=H200).product)
    head = torch.nn.Linear(64, 32)
    model = torch.nn.Sequential(*(layer for layer, *_ in layers), torch.nn.LayerNorm(64), head)
    result = tcgemm.tune(model, rows=16, progress=False)
    assert [row["product"] for row in result.rows] == expected[1:]  # the first two have one
    assert expected[0] == expected[1] and all(expected)
    assert result.skipped == {"8": api.OF_F32}
    assert "skipped: 8: float32 with precision" in str(result)
    monkeypatch.setattr(api.torch_precision, "default", lambda: "high")
    cases, skipped = api.of_model(head, [8, 16])
    assert [(case.dtype, case.m, case.n, case.k) for case in cases] == [
        ("tf32", m, 32, 64) for m in (8, 16)
    ]
    assert not skipped


def test_tune_stores_what_later_plans_take(fake_gpu):
    def stop(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tcgemm.tune([SHAPE, (8, 4096, 14336)], progress=stop)
    assert plan(*SHAPE)["tuned"] and not plan(8, 4096, 14336)["tuned"]
    lines = []
    result = tcgemm.tune([SHAPE, (8, 4096, 14336)], progress=lines.append)
    assert len(lines) == 2 and lines[0].startswith("1 of 2: bf16 (accumulator f32), TN, m 16 ")
    for row, m in zip(result.rows, (16, 8), strict=True):
        explanation = ask(replace(CASE, m=m))
        assert explanation.tuned and name_of(explanation) == row["kernel"]
    assert "2 of 2 products have a faster kernel" in str(result)
    assert tcgemm.tune(SHAPE, progress=False).rows == result.rows[:1]  # not with the tuned kernel
    fake_gpu.us = lambda kernel: 10.0
    slow = tcgemm.tune(SHAPE, progress=False)
    assert not slow.rows[0]["stored"] and len(tuned.read(slow.path)["products"]) == 1
    assert not plan(*SHAPE)["tuned"]


def test_a_product_with_a_packed_weight_is_tuned(fake_gpu):
    fake_gpu.us = lambda kernel: 8.0 if "_16x32x64_w1" in kernel else 10.0
    layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 2048).bfloat16() for _ in range(2)))
    tcgemm.swap_linear(layers, "0", to=tcgemm.nn.PackedLinear, format="int4", group_size=64)
    tcgemm.swap_linear(layers, "1", to=tcgemm.nn.PackedLinear, format="table", table=range(16))
    result = tcgemm.tune(layers, rows=40, progress=False)
    assert result.skipped == {"1": "its weight has a table of its own"}
    shapes = tcgemm.tune((40, 2048, 1024), weight="int4", group_size=64, progress=False)
    for row in (*result.rows, *shapes.rows):
        assert "b packed int4 64" in row["product"] and row["stored"]
    x = torch.empty(40, 1024, dtype=torch.bfloat16)
    plan = tcgemm.explain(x, layers[0].packed.t(), device=H200)
    assert plan.tuned and "_16x32x64_w1" in plan.kernel


LINEAR = torch.nn.Linear(8, 8)
ERRORS = (
    (((8, 8),), {}, "a shape is (m, n, k) or (batch, m, n, k) with sizes of at least 1, or a text"),
    (((8, 8, 8),), {"dtypes": "s4"}, "dtypes has s4, but products of int4 and of bits"),
    (((8, 8, 8),), {"weight": "int4"}, "group_size is 128, which does not divide the 8 columns"),
    ((LINEAR,), {"weight": "int4"}, "weight belongs to shapes, but got a model, whose layers have"),
    (((8, 8, 8),), {"dtypes": "f32"}, "dtypes has f32, but float32 with precision"),
    (((8, 8, 8),), {"rows": 4}, "rows belongs to a model, but got shapes, which have m; leave it"),
    ((LINEAR,), {"sparse": True}, "sparse belongs to shapes, but got a model, whose layers have"),
    ((LINEAR,), {"rows": [4, 0]}, "rows has 0, but a layer's input has at least 1 row; pass rows"),
    ((LINEAR,), {"rows": []}, "rows is empty; pass rows such as [1, 16, 64, 256, 2048]."),
    ((LINEAR,), {"rows": "4"}, "rows has '4', but a layer's input"),
    ((torch.nn.ReLU(),), {}, "ReLU has no linear layer; pass a model with torch.nn.Linear or a"),
)


@pytest.mark.parametrize(("arguments", "options", "sentence"), ERRORS, ids=str)
def test_errors_name_the_argument(arguments, options, sentence):
    with pytest.raises(RuntimeError) as error:
        tcgemm.tune(*arguments, **options)
    assert str(error.value).startswith(f"tcgemm.tune: {sentence}")


def test_a_device_that_is_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert error_message(lambda: tcgemm.tune((8, 8, 8))) == (
        "tcgemm.tune: torch finds no CUDA GPU, and kernels are timed on one; run it on a machine "
        "with a GPU."
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for device in ("cpu", "cuda:7", "gpu", 3.5):
        with pytest.raises(RuntimeError, match=f"device is {device!r}, but has to be one of this"):
            tcgemm.tune((8, 8, 8), device=device)


def test_what_is_checked_on_a_gpu(fake_gpu):
    with tcgemm.batch_invariant(), pytest.raises(RuntimeError, match="batch_invariant is active"):
        tcgemm.tune((8, 8, 8))
    for options in ({"seconds": 0}, {"progress": "yes"}):
        with pytest.raises(RuntimeError, match=f"^tcgemm.tune: {next(iter(options))} is"):
            tcgemm.tune((8, 8, 8), **options)


def test_the_command_tunes_shows_and_clears(fake_gpu, capsys):
    def output(*arguments):
        assert command.run([*arguments]) == 0
        return capsys.readouterr()

    tuned_now = output("--shapes", "16x4096x14336", "--dtypes", "bf16", "--seconds", "0.1")
    assert "1 of 1 products have a faster kernel" in tuned_now.out
    assert "1 of 1: bf16" in tuned_now.err
    text = output("--show").out
    assert "NVIDIA H200, driver 570.86.15" in text and "m 16 n 4096 k 14336" in text
    (path,) = tuned.paths()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"driver": "535.1"}))
    (path.parent / "tuned-x.json").write_text("broken")
    text = output("--show").out
    assert "not taken here: it is for the driver 535.1, but here is 570.86.15" in text
    assert "tuned-x.json: it is no JSON file" in text
    assert output("--clear").out.startswith("removed 2 files from ")
    assert output("--show").out.startswith("there is no file of tcgemm.tune in ")


def test_the_command_takes_a_model(fake_gpu, tmp_path, monkeypatch, capsys):
    text = "import torch\nnumber = 3\ndef small():\n    return torch.nn.Linear(64, 32).half()\n"
    (tmp_path / "some_models.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    arguments = ["--model", "some_models:small", "--rows", "4,8", "--quiet"]
    assert command.run(arguments) == 0
    output = capsys.readouterr()
    assert "m 4 n 32 k 64" in output.out and "m 8 n 32 k 64" in output.out and not output.err
    for name in ("some_models:large", "no_models:small", "some_models", "some_models:number"):
        with pytest.raises(RuntimeError, match="pass MODULE:FUNCTION"):
            command.run(["--model", name])


def test_the_command_refuses_other_arguments(capsys):
    for arguments in ([], ["--show", "--clear"], ["--model", "a:b", "--rows", "x"]):
        with pytest.raises(SystemExit):
            command.run(arguments)
        assert "usage: tcgemm tune" in capsys.readouterr().err
