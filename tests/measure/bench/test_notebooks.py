"""The notebooks run from their first cell to the last."""

import pytest

from benchmarks import run_notebooks

from support.samples import some


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
