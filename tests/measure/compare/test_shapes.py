"""tcgemm.compare of shapes: the rows, the baselines, the sentences, and what stays as it was."""

import contextlib
import io
import itertools
import math
import re
import sys
import unittest.mock

import pytest
import torch
from torch._dynamo.testing import EagerAndRecordGraphs

import tcgemm
from tcgemm.measure import baseline, timing

from support.error_asserts import assert_error_message, error_message

QUICK = {"against": "torch", "seconds": 0.004, "progress": False, "device": "cpu"}


def compare(shapes, **options):
    return tcgemm.compare(shapes, **QUICK | options)


def test_a_row_for_each_shape_dtype_and_layout():
    lines = []
    result = compare(
        [(64, 64, 64), (3, 16, 16, 16), "33x17x40"],
        dtypes=["bf16", torch.float32, "torch.float8_e4m3fn"],
        layouts=["TN", "NN"],
        progress=lines.append,
    )
    rows = result.rows
    assert len(rows) == 18 == len([line for line in lines if " of 18: " in line])
    assert {row["dtype"] for row in rows} == {"bf16", "f32", "e4m3"}
    assert {(row["function"], row["batch"]) for row in rows} == {("mm", 1), ("bmm", 3)}
    for row in rows:
        assert row["us"] > 0 and row["tflops"] > 0 and row["gbps"] > 0 and row["kernel"] == "cpu"
        assert row["exact"] and 0 < row["max_error_ratio"] <= 1
        is_refused = row["dtype"] == "e4m3" and row["batch"] == 3  # torch has no batched one
        assert ("torch" in row["ratios"]) is not is_refused
        assert ("torch" in row["refused"]) is is_refused
        if not is_refused:
            own, torchs = row["us"], row["baselines"]["torch"]["us"]
            assert math.isclose(row["ratios"]["torch"], torchs / own, rel_tol=0.05)
    facts = result.facts
    assert facts["gpu"] == "cpu" and facts["torch"] == torch.__version__
    assert facts["tcgemm"] == tcgemm.__version__ and facts["date"] and facts["method"]
    assert facts["driver"] is None and facts["clocks"] is None


@pytest.mark.parametrize(
    "options",
    [
        {"dtypes": "bf16", "bias": True, "activation": "gelu", "residual": True},
        {"dtypes": "e4m3", "bias": True, "activation": "relu", "scales": "tensor"},
        {"dtypes": ["e4m3", "e5m2"], "precision": "fast", "scales": "row"},
        {"dtypes": "tf32", "layouts": "NT", "activation": "silu"},
        {"dtypes": ["s8", "u8", "f64", "f16"]},
        {"dtypes": "bf16", "sparse": True},
        {"dtypes": ["bf16", "f16"], "weight": "int4", "group_size": 32},
        {"weight": "nf4", "bias": True, "activation": "gelu", "residual": True},
        {"weight": "int8"},
    ],
    ids=str,
)
def test_epilogues_scales_and_sparse_weights(options):
    for row in compare((32, 64, 64), **options).rows:
        assert row["us"] > 0 and row["max_error_ratio"] <= 1 and row["exact"] is not False, row
        assert row["ratios"] or row["refused"], row


def test_subbyte_integers_are_compared_with_int8():
    rows = compare([(32, 16, 64), (2, 8, 8, 128)], dtypes=["s4", "u4", "b1"]).rows
    assert [(row["dtype"], row["batch"]) for row in rows] == [
        (dtype, batch) for dtype in ("s4", "u4", "b1") for batch in (1, 2)
    ]
    for row in rows:
        assert row["exact"] is True and row["accumulation"] == "s32"
        assert row["max_error_ratio"] is None and row["us"] > 0
        if row["batch"] == 1:
            assert row["baselines"]["torch"]["name"] == "torch._int_mm of int8"
        else:
            assert row["refused"]["torch"]


def test_subbyte_integers_fill_whole_bytes():
    (row,) = compare((8, 8, 12), dtypes="b1").rows
    assert row["why"] == (
        "tcgemm failed: tcgemm.compare: K is 12, but b1 fills whole bytes along K; pass a multiple "
        "of 8."
    )
    assert error_message(lambda: compare((8, 8, 16), dtypes="s4", layouts=["TN", "NN"])) == (
        "tcgemm.compare: s4 shares bytes along K, so it has the layout TN, but layouts has TN, NN; "
        "pass layouts='TN'."
    )


def test_every_baseline_is_measured_or_its_reason_is_told(monkeypatch):
    backend = EagerAndRecordGraphs()
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **k: original(f, backend=backend, **k))

    def mine(a, b, bias=None):
        assert bias is not None
        return a @ b + bias

    def broken(a, b, bias=None):
        raise ValueError("no such product\nand more")

    shapes = [(8, 16, 8 * k) for k in range(1, 12)]  # torch.compile gives up after 8 of a function
    against = ("torch", "torch.compile", mine, broken)
    result = compare(shapes, against=against, bias=True, dtypes="f32")
    assert len(backend.graphs) == len(shapes)
    for row in result.rows:
        assert list(row["ratios"]) == ["torch", "torch.compile", "mine"]
        assert row["refused"] == {"broken": "no such product"}
        assert row["baselines"]["torch.compile"]["name"] == "torch.compile of torch linear"
    assert result.baselines == ["torch", "torch.compile", "mine"]
    table = compare((8, 8, 8), against=())
    assert table.rows[0]["us"] > 0 and not table.rows[0]["ratios"] and not table.baselines


def test_nothing_is_compiled_that_torch_refuses(monkeypatch):
    monkeypatch.setattr(baseline, "compiled_product", lambda: 1 / 0)
    row = compare((2, 16, 16, 16), dtypes="s8", against=("torch", "torch.compile")).rows[0]
    assert row["us"] > 0 and not row["ratios"]
    refused = row["refused"]
    assert re.search("dimension 2|must be a matrix", refused["torch"])
    assert refused["torch"] == refused["torch.compile"]


def settings():
    """Settings of the caller that a comparison must not change."""
    matmul = torch.backends.cuda.matmul
    own = matmul.allow_tf32, matmul.fp32_precision, torch.get_default_dtype()
    modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    return own, modes, torch.get_rng_state().tolist()


@pytest.mark.parametrize("error", [None, KeyboardInterrupt], ids=str)
def test_settings_and_random_numbers_stay(monkeypatch, error):
    if error:
        monkeypatch.setattr(timing, "measure", unittest.mock.Mock(side_effect=error))
    with torch.autocast("cpu", torch.bfloat16), torch.enable_grad():
        before = settings()
        with pytest.raises(error) if error else contextlib.nullcontext():
            rows = compare([(16, 16, 16), (2, 8, 8, 8)], dtypes=["tf32", "bf16"]).rows
            assert all(row["exact"] and row["baselines"]["torch"]["us"] > 0 for row in rows)
        assert before == settings()


def test_no_dtype_needs_numpy(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)  # so that its import fails
    for row in compare((8, 8, 8), dtypes=["f32", "f64"]).rows:
        assert row["exact"] and 0 < row["max_error_ratio"] <= 1


@pytest.mark.parametrize(
    ("lost", "share", "sentence"),
    [
        (0, 0, ""),
        (1, 1, "in all samples, so these times and ratios are not reliable; measure again on a"),
    ],
    ids=["quiet", "busy"],
)
def test_a_busy_machine_is_told(monkeypatch, lost, share, sentence):
    """lost: how often another process has the CPU between two looks."""
    counts = itertools.count(0, lost) if lost else itertools.repeat(0)
    monkeypatch.setattr(timing, "_switches", lambda: next(counts))
    lines = []
    result = compare((8, 8, 8), progress=lines.append)
    (row,) = result.rows
    assert row["facts"].get("busy_samples", 0) == share
    assert (sentence in str(result)) and (sentence in lines[-1])
    assert ("other processes had the CPU" in str(result)) is bool(sentence)


def test_progress_goes_to_stderr():
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        compare((8, 8, 8), progress=True)
    line = text.getvalue().splitlines()[-1]
    assert line.startswith("1 of 1: mm bf16 TN 8x8x8: ") and " x torch" in line
    with contextlib.redirect_stderr(text := io.StringIO()):
        compare((8, 8, 8), progress=False)
    assert not text.getvalue()


MODEL = torch.nn.Linear(4, 4)
SHAPE = (8, 8, 8)


@pytest.mark.parametrize(
    ("arguments", "options", "pieces"),
    [
        ([(8, 8)], {}, ["a shape is (m, n, k)", "got (8, 8)", "pass"]),
        ([(8, 0, 8)], {}, ["at least 1", "(8, 0, 8)"]),
        ([8], {}, ["a shape is", "got 8"]),
        ([[]], {}, ["no shape in the list", "pass"]),
        (["8x8xk"], {}, ["a shape is", "'8x8xk'"]),
        ([[SHAPE, (8, 8.0, 8)]], {}, ["a shape is", "(8, 8.0, 8)"]),
        ([[True, True, True]], {}, ["a shape is"]),
        ([torch.zeros(3, 3)], {}, ["a shape is", "torch.nn.Module"]),
        ([SHAPE], {"dtypes": "bf17"}, ["dtypes has 'bf17'", "bf16", "take"]),
        ([SHAPE], {"dtypes": [16]}, ["dtypes has 16"]),
        ([SHAPE], {"layouts": "TX"}, ["layouts has 'TX'", "TN, NN, TT, NT", "take"]),
        ([SHAPE], {"against": "cublas"}, ["against has 'cublas'", "'torch'", "take"]),
        ([SHAPE], {"against": (max, max)}, ["two baselines of the name 'max'", "rename"]),
        ([SHAPE], {"activation": "tanh"}, ["activation is 'tanh'", "'relu'", "take"]),
        ([SHAPE], {"bias": torch.zeros(8)}, ["bias is a Tensor", "pass True or False"]),
        ([SHAPE], {"scales": "column", "dtypes": "e4m3"}, ["scales is 'column'", "1x128"]),
        ([SHAPE], {"scales": "row"}, ["scales is 'row'", "float8", "add e4m3"]),
        ([SHAPE], {"precision": "high"}, ["precision is 'high'", "tf32"]),
        ([SHAPE], {"dtypes": "s8", "bias": True}, ["dtypes has s8", "leave it out"]),
        ([(2, 8, 8, 8)], {"bias": True}, ["no batch", "(batch * m, n, k)"]),
        ([SHAPE], {"sparse": True, "dtypes": "f64"}, ["sparse=True has bf16", "f64", "leave"]),
        ([SHAPE], {"sparse": True, "layouts": "NN"}, ["layout TN", "layouts='TN'"]),
        ([SHAPE], {"sparse": True, "bias": True}, ["without bias", "leave"]),
        ([SHAPE], {"weight": "int3"}, ["weight is 'int3'", "int4, int8, e4m3", "pass"]),
        ([SHAPE], {"weight": "table"}, ["weight is 'table'", "nvfp4; pass"]),
        ([SHAPE], {"weight": "int4", "dtypes": "f32"}, ["bf16 or f16", "dtypes has f32", "leave"]),
        ([SHAPE], {"weight": "int4", "layouts": "NN"}, ["layout TN", "layouts='TN'"]),
        ([SHAPE], {"weight": "int4", "sparse": True}, ["sparse does not go with a packed weight"]),
        ([(2, 8, 8, 32)], {"weight": "int4", "group_size": 32}, ["is one matrix", "(batch * m"]),
        ([(8, 8, 48)], {"weight": "int4", "group_size": 32}, ["does not divide the 48 columns"]),
        ([SHAPE], {"group_size": 32}, ["group_size is 32", "weight", "leave it out"]),
        ([SHAPE], {"seconds": 0}, ["seconds is 0", "pass such as 0.3"]),
        ([SHAPE], {"device": "gpu"}, ["device is 'gpu'", "'cpu'", "pass"]),
        ([SHAPE], {"progress": "yes"}, ["progress is 'yes'", "pass"]),
        ([SHAPE], {"dtype": "bf16"}, ["no argument dtype", "dtypes"]),
        ([SHAPE], {"to": tcgemm.nn.Linear}, ["to belongs to compare(model"]),
        ([SHAPE, MODEL], {}, ["example input of a model", "pass compare(model, example_input)"]),
        ([MODEL], {}, ["needs an example input", "pass"]),
        ([MODEL, torch.zeros(1, 4)], {"dtypes": "bf16"}, ["dtypes belongs to compare(shapes)"]),
    ],
    ids=str,
)
def test_bad_input_ends_in_a_sentence(arguments, options, pieces):
    assert_error_message(
        lambda: tcgemm.compare(*arguments, **options), ["tcgemm.compare: ", *pieces]
    )


def test_torch_is_measured_and_not_what_a_use_puts_in_its_place():
    with tcgemm.use():
        for arguments in ((SHAPE,), (MODEL, torch.zeros(1, 4))):
            pieces = ["tcgemm.compare: ", "tcgemm.use is active", "end it"]
            assert_error_message(lambda values=arguments: tcgemm.compare(*values), pieces)
    assert compare(SHAPE).rows[0]["ratios"]["torch"] > 0


def test_a_use_takes_the_measured_table(tmp_path):
    result = compare([(16, 16, 16), (64, 64, 64)], dtypes="f32", layouts="NN")
    for row, ratio in zip(result.rows, (2.0, 0.5), strict=True):
        row["ratios"]["torch"] = ratio
    changes = {"function": "QuantLinear"}, {"epilogue": "sparse"}  # no dense products
    result.rows += [result.rows[0] | {"ratios": {"torch": 0.1}} | change for change in changes]
    result.save(tmp_path / "table.json")
    for table in (result, str(tmp_path / "table.json")):
        with tcgemm.use(table=table) as use:
            for size in (16, 64):
                torch.mm(torch.ones(size, size), torch.ones(size, size))
        assert (use.report().taken, use.report().left) == (1, 1)


def test_a_missing_gpu_ends_in_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pieces = ["device is 'cuda'", "no CUDA GPU", "pass device='cpu'"]
    assert_error_message(lambda: tcgemm.compare(SHAPE, device="cuda"), pieces)


@pytest.mark.gpu
@pytest.mark.alone
def test_shapes_on_a_gpu():
    shapes = [(1024, 1024, 1024), (16, 4096, 4096), (4, 256, 256, 256), (511, 513, 1000)]
    result = tcgemm.compare(
        shapes, dtypes=["bf16", "f32", "e4m3"], layouts=["TN", "NN"], seconds=0.1, progress=False
    )
    print(result)
    assert len(result.rows) == 24 and result.facts["gpu"] == torch.cuda.get_device_name()
    for row in result.rows:
        assert row["kernel"].startswith("sm") and row["why"] and row["exact"], row
        assert 0 < row["max_error_ratio"] <= 1 and row["iqr_us"] < row["us"], row
        if row["dtype"] != "e4m3":
            assert set(row["ratios"]) == {"torch", "torch.compile"}, row
        assert {*row["ratios"], *row["refused"]} == {"torch", "torch.compile"}, row
    assert any(row["refused"] for row in result.rows if row["dtype"] == "e4m3")


@pytest.mark.gpu
def test_epilogues_and_sparse_weights_on_a_gpu():
    common = {"seconds": 0.1, "progress": False}
    fused = {"bias": True, "activation": "gelu", "residual": True}
    rows = tcgemm.compare((512, 1024, 512), dtypes=["bf16", "e4m3", "tf32"], **fused, **common).rows
    assert all(row["max_error_ratio"] <= 1 and row["ratios"] for row in rows), rows
    rows = tcgemm.compare((512, 1024, 512), dtypes=["bf16", "s8"], sparse=True, **common).rows
    assert all(row["max_error_ratio"] <= 1 and row["us"] for row in rows), rows
