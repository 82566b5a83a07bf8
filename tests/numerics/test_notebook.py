"""The notebook of docs/numerics prints what is stored in it."""

import json

import pytest

from support.source_tree import ROOT

PATH = ROOT / "benchmarks" / "notebooks" / "drifting_sums.ipynb"
CELLS = [cell for cell in json.loads(PATH.read_text())["cells"] if cell["cell_type"] == "code"]


def printed(cell):
    """The text that is stored below a cell."""
    streams = [output["text"] for output in cell["outputs"] if output["output_type"] == "stream"]
    return "".join("".join(text) for text in streams)


def test_the_cells_print_what_is_stored(capsys):
    pytest.importorskip("matplotlib").use("Agg")
    namespace = {}
    for cell in CELLS:
        exec(compile("".join(cell["source"]), "cell", "exec"), namespace)
        assert capsys.readouterr().out == printed(cell)
    namespace["pyplot"].close("all")
