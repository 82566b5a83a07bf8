"""Types: the words of arguments, and what the type checker pyright finds in the package."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

import tcgemm
from tcgemm import dtypes, typing
from tcgemm.ops.activations import ACTIVATIONS
from tcgemm.typing import words

from support import pyright
from support.source_tree import ROOT

A = torch.ones(8, 8)
FLOAT8 = A.to(torch.float8_e4m3fn)
CONSUMER, MISTAKES = (ROOT / "tests/typing" / name for name in ("consumer.py", "mistakes.py"))


def measured(**options) -> object:
    return tcgemm.compare((8, 8, 8), progress=False, **options)


def test_torchs_activations_are_those_of_the_type():
    assert tuple(ACTIVATIONS) == words(typing.Activation)


# The words of a type, and a call with another word, whose error names them all.
REFUSED = {
    "activation": (typing.Activation, lambda: tcgemm.mm(A, A, activation="x")),
    "float32": (typing.Float32Precision, lambda: tcgemm.mm(A, A, precision="x")),
    "float8": (typing.Float8Precision, lambda: tcgemm.mm(FLOAT8, FLOAT8, precision="x")),
    "granularity": (typing.Granularity, lambda: tcgemm.quantize(A, torch.int8, "x")),
    "weight": (typing.WeightGranularity, lambda: tcgemm.quantized_linear(A, A, granularity="x")),
    "method": (typing.PruneMethod, lambda: tcgemm.prune24(A, method="x")),
    "pattern": (typing.SparsePattern, lambda: tcgemm.prune24(A, pattern="x")),
    "gradient": (
        typing.SparseGradient,
        lambda: tcgemm.nn.SparseLinear24(8, 8, method="mask", gradient="x"),
    ),
    "layout": (typing.Layout, lambda: measured(layouts="x")),
    "dtype": (typing.MeasuredDType, lambda: measured(dtypes="x")),
    "baseline": (typing.TorchBaseline, lambda: measured(against="x")),
    "scales": (typing.Granularity, lambda: measured(dtypes="e4m3", scales="x")),
    "fp8": (typing.Float8Precision, lambda: measured(dtypes="e4m3", precision="x")),
}


@pytest.mark.parametrize(("literal", "call"), REFUSED.values(), ids=REFUSED)
def test_an_unknown_word_is_refused_with_the_words_of_the_type(literal, call):
    with pytest.raises(RuntimeError) as error:
        call()
    text = re.split(r", but |there are ", str(error.value), maxsplit=1)[1]
    # The error leaves "prepared" out, which tcgemm.nn.Linear passes.
    expected = set(words(literal)) - {"prepared"}
    assert expected <= set(re.findall(r"[\w.:]*\w", text))
    quoted = set(re.findall(r"[\"']([\w.:]*\w)[\"']", text)) - {"x"}
    assert quoted <= expected


@pytest.mark.parametrize("word", words(typing.Precision))
def test_every_precision_is_accepted(word):
    operand = FLOAT8 if word in words(typing.Float8Precision) else A
    assert tcgemm.mm(operand, operand, precision=word).shape == (8, 8)


@pytest.mark.parametrize("word", words(typing.Activation))
def test_every_activation_is_accepted(word):
    assert tcgemm.mm(A, A, activation=word).shape == (8, 8)


def test_names_of_dtypes_are_those_of_the_table():
    assert words(typing.DTypeName) == tuple(row.name for row in dtypes.TABLE)


def test_the_package_says_that_it_has_types():
    assert (Path(tcgemm.__file__).parent / "py.typed").is_file()


def incomplete(symbol: dict) -> bool:
    is_complete = symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]
    return symbol["isExported"] and not is_complete


def text_of(symbol: dict) -> str:
    return f"{symbol['name']}: {' '.join(row['message'] for row in symbol['diagnostics'])}"


@pyright.needs_pyright
def test_every_public_symbol_has_a_type():
    report = pyright.run("--verifytypes", "tcgemm", "--ignoreexternal")["typeCompleteness"]
    assert report["packageRootDirectory"] == str(ROOT / "tcgemm")
    assert len(report["symbols"]) > 1000
    assert not [text_of(symbol) for symbol in report["symbols"] if incomplete(symbol)]
    assert report["completenessScore"] == 1


@pytest.mark.nightly
@pyright.needs_pyright
def test_the_package_has_no_type_error():
    report = pyright.run(str(ROOT / "tcgemm"))
    assert report["summary"]["filesAnalyzed"] > 80
    assert not [
        f"{error['file']}:{error['range']['start']['line'] + 1} {error['message']}"
        for error in report["generalDiagnostics"]
    ]


@pyright.needs_pyright
def test_a_strict_consumer_has_no_error_and_every_mistake_is_reported():
    report = pyright.run("--project", ".", folder=CONSUMER.parent)
    assert report["summary"]["filesAnalyzed"] == 2
    errors = {
        f"{Path(error['file']).name}:{error['range']['start']['line'] + 1}": error["message"]
        for error in report["generalDiagnostics"]
    }
    lines = enumerate(MISTAKES.read_text().splitlines(), 1)
    wrong = {f"{MISTAKES.name}:{number}" for number, line in lines if line.endswith("# wrong")}
    assert len(wrong) > 35
    assert not {place: text for place, text in errors.items() if place not in wrong}
    missed = sorted(wrong - errors.keys())
    assert not missed, "pyright does not report these lines"


def test_the_consumer_runs():
    runpy.run_path(str(CONSUMER), run_name="__main__")
