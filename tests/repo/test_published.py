"""The published figures can be found by their names, and stored results lie where they are read."""

import json

import pytest

from tcgemm import published
from tcgemm.lab import store

FILE = published.__file__.replace("__init__.py", "figures.json")


def entries():
    with open(FILE) as file:
        return json.load(file)


def test_every_table_is_complete():
    keys = set()
    for entry in entries():
        key = entry["document"], entry["table"], entry["gpu"]
        assert key not in keys, f"{key} stands twice"
        keys.add(key)
        assert entry["document"] in published.DOCUMENTS
        assert len(set(entry["columns"])) == len(entry["columns"])
        assert all(len(values) == len(entry["columns"]) for values in entry["rows"].values())
    assert {document for document, _, _ in keys} == set(published.DOCUMENTS)


def test_an_unknown_table_is_named():
    with pytest.raises(ValueError, match="document '000', table 'X', GPU None; expected one of"):
        published.table("000", "X")
    with pytest.raises(ValueError, match="GPU 'H200'"):
        published.table("000", "I", "H200")


def test_a_missing_figure_is_none():
    row = {"row": "f16 f32 m16n8k16", "column": "completion"}
    assert published.figure("003", "III", gpu="H200", **row) is None
    assert published.figure("003", "III", row="f16", column="completion", gpu="A100") is None
    assert published.figure("001", "3", row="32x32", column="k 96", gpu="A100-PCIE-40GB") is None


def test_stored_results_by_the_names_of_their_gpus():
    for kind in ("probe", "ladder"):
        files = store.results(kind)
        assert files and all(name == file["header"]["gpu"] for name, file in files.items())
    assert store.results("model") == {}
