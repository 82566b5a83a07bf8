"""tcgemm explain: every argument that a product takes, by names that torch has too."""

import json
import subprocess
import sys

import pytest
import torch

import tcgemm
from tcgemm.cli import explain


def output(capsys, *arguments):
    """(the text of explain, the text of check_layout)"""
    assert explain.run([str(argument) for argument in arguments]) == 0
    first, second = capsys.readouterr().out.split("\ntcgemm: layout of ")
    return first, second


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def test_the_plain_product_is_that_of_the_function(capsys):
    text, _layout = output(capsys, 512, 256, 128)
    assert text == tcgemm.explain(meta(512, 128), meta(256, 128).t(), device="H200")


@pytest.mark.parametrize("word", ["bf16", "bfloat16", "torch.bfloat16"])
def test_dtypes_have_torchs_names_and_ours(capsys, word):
    assert "bf16 to f32" in output(capsys, 64, 64, 64, "--dtype", word, "--out-dtype", "float32")[0]
    sizes = (64, 64, 64, "--dtype", "torch.float8_e4m3fn", "--dtype-b", "float8_e5m2")
    assert "e4m3 by e5m2 to bf16" in output(capsys, *sizes)[0]


@pytest.mark.parametrize("operand", ["a", "b"])
def test_a_sparse_operand(capsys, operand):
    for dtype, pattern in (("bf16", "2:4"), ("f32", "1:2")):
        sizes = (512, 256, 128, "--dtype", dtype, "--sparse", operand, "--precision", "high")
        text, layout = output(capsys, *sizes)
        assert f"sparse        {operand}: {pattern} along k" in text
        assert "_sparse" in layout


@pytest.mark.parametrize(("word", "group"), [("default", 128), ("32", 32), ("row", None)])
def test_a_packed_weight(capsys, word, group):
    options = () if word == "default" else ("--group-size", word)
    text, layout = output(capsys, 1, 256, 512, "--weight", "int4", *options, "--bias")
    w = tcgemm.pack_weight(meta(256, 512), "int4", group)
    assert text == tcgemm.explain(meta(1, 512), w.t(), bias=meta(256), device="H200")
    assert "packed        b: int4" in text and "_packed4_" in layout


def test_json_has_every_field(capsys):
    assert explain.run(["64", "64", "64", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    plan = tcgemm.explain(meta(64, 64), meta(64, 64).t(), device="H200")
    layouts = content.pop("layouts")
    assert content == json.loads(json.dumps(plan.fields)) and content["tile"] == list(plan.tile)
    assert layouts[0].startswith("tcgemm: layout of a 64 x 64")


def test_the_epilogue(capsys):
    words = "512 256 128 --dtype int8 --out-dtype half --zero-a row --zero-b tensor --scale-a row "
    words += "--scale-b tensor --c --beta 0.5 --bias --activation gelu_tanh --residual "
    words += "--scale-out --amax --alpha 2 --batch 3"
    text, _layout = output(capsys, *words.split())
    epilogue = (
        "zero_a, zero_b, alpha, scale_a (a value a row), scale_b (one value), beta * c, bias, "
        "gelu_tanh, residual, amax, scale_out"
    )
    assert epilogue in text and "out 3 x 512 x 256" in text
    sizes = ("--scale-a", "1x128", "--scale-b", "128x128")
    text, _layout = output(capsys, 512, 256, 384, "--dtype", "e4m3", *sizes)
    assert "scale_a (blocks of 1 x 128), scale_b (blocks of 128 x 128)" in text
    assert "s32 (accumulator s32)" in output(capsys, 64, 64, 64, "--dtype", "s8", "--bias")[0]


def test_every_argument_of_explain_has_an_option():
    helped = " ".join(explain.parser().format_help().split())
    defaults = tcgemm.ops.explanation.explain.__kwdefaults__
    # The command line describes no grouped product.
    for name in defaults.keys() - {"out", "offs", "accumulate"}:
        assert f"--{name.replace('_', '-')}" in helped, name
    for size in ("rows of a", "columns of b", "which the product sums over"):
        assert size in helped


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--dtype", "bf17"),
            "argument --dtype: 'bf17' is no dtype; there are f16 (float16), bf16",
        ),
        (("--weight", "int5"), "argument --weight: invalid choice: 'int5'"),
        (("--group-size", "32"), "--group-size belongs to a packed weight; add --weight, such as"),
        (("--weight", "int4", "--group-size", "x"), "'x' is no group size; pass a number such as"),
        (
            ("--weight", "int4", "--sparse", "b"),
            "--weight says what b is, and so does --sparse; leave one of them out.",
        ),
        (("--weight", "nf4", "--dtype-b", "e4m3"), "what b is, and so does --dtype-b; leave one"),
        (("--activation", "geluu"), "argument --activation: invalid choice: 'geluu' (choose from"),
    ],
)
def test_wrong_words(capsys, arguments, sentence):
    with pytest.raises(SystemExit):
        explain.run(["8", "8", "8", *arguments])
    assert sentence in capsys.readouterr().err


def test_what_no_kernel_computes_is_one_sentence():
    command = [sys.executable, "-m", "tcgemm", "explain", "8", "8", "8", "--dtype", "f64"]
    process = subprocess.run([*command, "--out-dtype", "bf16"], capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stderr.startswith("tcgemm.explain: out_dtype is torch.bfloat16, but operands of")
    assert process.stderr.count("\n") == 1
