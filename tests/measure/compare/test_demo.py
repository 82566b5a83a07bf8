"""The demo: what it trains, what it accepts, what it prints."""

import re

import pytest
import torch

import tcgemm
from tcgemm.measure import demo

pytest.importorskip("sklearn", reason="the demo's data ships inside scikit-learn")
SMALL = {"cpu": ((8, 8, 128),)}


def run(*arguments):
    return demo.main(["--device", "cpu", *arguments])


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ({"tcgemm": 97.0, "baseline": 97.5, "int8": 96.7, "int4": 95.9}, None),
        ({"tcgemm": 94.9, "baseline": 95.2}, "The network of tcgemm recognises 94.90 %"),
        ({"tcgemm": 96.0, "baseline": 95.0}, "The network of baseline recognises 95.00 %"),
        ({"tcgemm": 98.5, "baseline": 98.4, "int8": 97.4}, "of int8 and tcgemm differ by 1.10"),
        ({"tcgemm": float("nan"), "baseline": 97.0}, "of tcgemm recognises nan %"),
    ],
)
def test_judge(accuracies, words):
    sentence = demo.judge(accuracies)
    assert (sentence is None) if words is None else (words in sentence)


def test_demo_on_the_cpu(capsys):
    assert run("--epochs", "15") == 0
    out = capsys.readouterr().out
    for name in ("tcgemm.nn.Linear", "torch.nn.Linear", *demo.SWAPS):
        assert re.search(rf"{name} +9\d\.\d\d % of the test digits", out)
    rows = [line.split() for line in out.splitlines()]
    products = {(row[2], row[3]) for row in rows if row[1:2] == ["mm"]}
    assert products >= {(dtype, "TN") for dtype, _ in demo.PRODUCTS}
    assert {layout for dtype, layout in products if dtype == "bf16"} == {"TN", "NN", "TT", "NT"}
    assert "511x511x511" in out and "500x33x777" in out
    assert " sparse " in out and " packed-int4-128 " in out and "The networks agree" in out


def test_a_network_that_has_not_learnt_fails_the_demo(capsys, monkeypatch):
    monkeypatch.setattr(demo, "products", lambda device: None)
    assert run("--epochs", "1") == 1
    assert "more than 95 % was expected" in capsys.readouterr().err


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_wrong_product_fails_the_demo(capsys, monkeypatch, value):
    monkeypatch.setattr(demo, "digits", lambda device, epochs, seed: None)
    monkeypatch.setattr(demo, "PRODUCTS", (("f32", {}),))
    monkeypatch.setattr(demo, "SHAPES", SMALL)
    monkeypatch.setattr(tcgemm, "mm", lambda a, b, out, **options: out.fill_(value))
    assert run() == 1
    assert "outside their error bound: f32 TN 8x8x128" in capsys.readouterr().err


def test_what_the_gpu_lacks_is_left_out(capsys, monkeypatch):
    def refuse(a, b, **options):
        if a.dtype is torch.float8_e4m3fn or isinstance(b, tcgemm.SparseTensor24):
            raise RuntimeError("tcgemm: no kernel")

    monkeypatch.setattr(tcgemm, "check_layout", refuse)
    monkeypatch.setattr(demo, "SHAPES", SMALL)
    assert run("--epochs", "15") == 0
    out = capsys.readouterr().out
    for name in ("QuantLinear, fp8", "SparseLinear24, trained on", "e4m3", "s8 sparse"):
        assert f"{name}: this GPU has no kernel for it" in out
    assert "QuantLinear, int8  " in out and " s8 " in out and "e4m3  " not in out


@pytest.mark.gpu
def test_demo_on_a_gpu(capsys):
    assert demo.main([]) == 0
    out = capsys.readouterr().out
    assert "bf16 autocast" in out and "_bf16_f32_" in out
    for dtype, accumulator in (("e4m3", "f32"), ("s8", "s32"), ("f64", "f64")):
        lacks = demo.lacks_kernel("cuda", dtype, {})  # in a build for older GPUs
        assert (f"_{dtype}_{accumulator}_" in out) is not lacks
    assert ("_sparse " in out) is not demo.lacks_kernel("cuda", "bf16", demo.SPARSE)
