"""Files of results: their keys, their merging, the commit they name."""

import copy
import json
import re

import pytest
import torch

import tcgemm
from tcgemm.measure import kernel_name, protocol, results_file

from support.bench_fixtures import synthetic


def test_kernel_name_is_that_of_explain():
    a = torch.empty(512, 512, dtype=torch.bfloat16, device="meta")
    name = kernel_name(a, a.t(), device="H200")
    assert name.startswith("sm") and f" {name} (row " in tcgemm.explain(a, a.t(), device="H200")
    assert kernel_name(a[:0], a) == "cpu"


def test_rows_have_the_public_keys(tmp_path):
    public = (
        "op dtype layout m n k batch kernel accumulation epilogue graph set us tflops baseline "
        "baseline_us ratio max_error_ratio exact gpu commit clock_mhz power_w"
    )
    assert list(results_file.KEYS) == public.split()
    path = tmp_path / results_file.file_name("NVIDIA H200")
    assert path.name == "h200.json"
    results = synthetic()
    results_file.save(results, path)
    copy_of_results = results_file.load(path)
    assert json.loads(path.read_text())["rows"] == copy_of_results["rows"]
    assert sorted(map(results_file.key, copy_of_results["rows"])) == sorted(
        map(results_file.key, results["rows"])
    )
    faulty = copy.deepcopy(results)
    faulty["rows"][0]["speed"] = 1
    path.write_text(json.dumps(faulty))
    with pytest.raises(ValueError, match="does not have the keys"):
        results_file.load(path)


def test_merge_keeps_the_latest_row_of_a_case():
    old, new = synthetic(), results_file.empty()
    row = {**old["rows"][0], "us": 1.0, "commit": "def"}
    results_file.put(new, row, {"date": "tomorrow"})
    new["header"] = {"gpu": "NVIDIA H200", "torch": "3"}
    count = len(old["rows"])
    protocol.merge(old, new)
    assert len(old["rows"]) == count and old["rows"][0] == row
    assert old["header"]["torch"] == "3"
    assert old["details"][results_file.key(row)] == {"date": "tomorrow"}


def test_commit_is_named_or_unknown(monkeypatch, tmp_path):
    assert re.fullmatch(r"[0-9a-f]{7,}\+?|unknown", results_file.commit())
    monkeypatch.setattr(results_file, "CHECKOUT", tmp_path)
    assert results_file.commit() == tcgemm.__version__  # an installed package
    (tmp_path / "csrc").mkdir()
    assert results_file.commit() == "unknown"  # sources without git
