"""The notebooks run from their first cell to the last, and `tcgemm notebooks` copies them."""

import json
import re

import pytest

from benchmarks import run_notebooks
from tcgemm import _shipped, cli

from support.samples import some
from support.source_tree import ROOT


@some("name", sorted(run_notebooks.PATHS), ["quickstart"])
def test_it_runs(name):
    pytest.importorskip("nbclient")
    pytest.importorskip("matplotlib")
    notebook = run_notebooks.executed(name)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = [str(part.get("text", "")) + str(part.get("data", "")) for part in outputs]
    assert any(part.output_type == "stream" for part in outputs)
    if name == "quickstart":
        assert sum(text.count("<table") for text in texts) >= 3
        assert any("swapped" in text for text in texts)


def test_unknown_notebook(capsys):
    with pytest.raises(SystemExit):
        run_notebooks.main(["tomorrow"])
    assert "there is no notebook 'tomorrow'; expected one of" in capsys.readouterr().err


def links(path):
    """The links of a notebook to files."""
    cells = json.loads(path.read_text())["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.findall(r"\]\(([^)]+)\)", text)


def test_the_command_copies_them(tmp_path, capsys):
    folder = tmp_path / "new" / "notebooks"
    assert cli.main(["notebooks", str(folder)]) == 0
    copies = {path.relative_to(folder) for path in folder.rglob("*.ipynb")}
    assert {path.stem for path in copies} == set(run_notebooks.PATHS)
    capsys.readouterr()
    for path in folder.rglob("*.ipynb"):
        for link in links(path):
            assert link.startswith("https://") or (path.parent / link).is_file(), (path, link)
    pages = [link for path in folder.rglob("*.ipynb") for link in links(path) if "/docs/" in link]
    names = [link.split("/blob/main/")[1] for link in pages]
    assert names and all((ROOT / name).is_file() for name in names)


def test_the_command_overwrites_nothing_unasked(tmp_path, capsys):
    (tmp_path / "quickstart.ipynb").write_text("mine")
    assert cli.main(["notebooks", str(tmp_path)]) == 1
    assert "has quickstart.ipynb already; name another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["quickstart.ipynb"]
    assert (tmp_path / "quickstart.ipynb").read_text() == "mine"
    assert cli.main(["notebooks", str(tmp_path), "--force"]) == 0
    assert json.loads((tmp_path / "quickstart.ipynb").read_text())["cells"]


def test_the_command_lists_them(capsys):
    assert cli.main(["notebooks"]) == 0
    assert "Which weight format for my model?" in capsys.readouterr().out


def test_an_installation_without_notebooks(monkeypatch, tmp_path):
    monkeypatch.setattr(_shipped, "PACKAGE", tmp_path / "tcgemm")
    with pytest.raises(RuntimeError, match="There are no notebooks in"):
        cli.main(["notebooks"])
