"""The bar of a run needs tqdm, which is optional."""

import sys

from tcgemm.lab import progress


def test_without_tqdm_a_line_is_printed(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with progress.bar(3, "probe", "row") as bar:
        assert bar is None
    assert "pip install tqdm" in capsys.readouterr().out
