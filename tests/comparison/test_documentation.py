"""The first notebook and the page about tcgemm.compare run as they stand."""

import ast
import json

import pytest

from support import pages
from support.source_tree import ROOT

QUICKSTART = ROOT / "docs" / "notebooks" / "quickstart.ipynb"


def cells(path):
    return json.loads(path.read_text())["cells"]


def run(source, namespace):
    """Executes a cell and returns the value of its last expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    if last is not None:
        return eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


def test_cells_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    namespace, shown = {}, []
    for cell in cells(QUICKSTART):
        if cell["cell_type"] == "code":
            shown.append(run("".join(cell["source"]), namespace))
    pyplot.close("all")
    tables = [value for value in shown if hasattr(value, "_repr_html_")]
    assert len(tables) >= 3 and all("<table" in value._repr_html_() for value in tables)
    assert "swapped" in capsys.readouterr().out


def test_nothing_is_stored_that_a_run_writes():
    for cell in cells(QUICKSTART):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pages.run("docs/guides/compare.md")
    said = capsys.readouterr()
    assert "x product_in_halves" in said.out
    assert "the swap to tcgemm.nn.QuantLinear" in said.out and "12 of 12: " in said.err
