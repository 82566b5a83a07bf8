"""Files of results: their keys, their merging, the commit they name."""

import copy
import json
import re

import pytest

from benchmarks import results_file
from tcgemm.testing import kernel_name

from support.bench_fixtures import synthetic


def test_kernel_name_of_an_explanation():
    text = "problem: bf16\n  kernel: sm90a_bf16_f32_128x256x64_w2_s4_tn, because\nkernels: 3"
    assert kernel_name(text) == "sm90a_bf16_f32_128x256x64_w2_s4_tn"
    assert kernel_name("nothing to launch") == "cpu"


def test_rows_have_the_public_keys(tmp_path):
    public = (
        "op dtype layout m n k batch kernel accumulation epilogue graph set us tflops rival "
        "rival_us ratio max_error_ratio exact gpu commit clock_mhz power_w"
    )
    assert list(results_file.KEYS) == public.split()
    path = tmp_path / results_file.file_name("NVIDIA H200")
    assert path.name == "h200.json"
    results = synthetic()
    results_file.save(results, path)
    again = results_file.load(path)
    assert json.loads(path.read_text())["rows"] == again["rows"]
    assert sorted(map(results_file.key, again["rows"])) == sorted(
        map(results_file.key, results["rows"])
    )
    bad = copy.deepcopy(results)
    bad["rows"][0]["speed"] = 1
    path.write_text(json.dumps(bad))
    with pytest.raises(ValueError, match="has not the keys"):
        results_file.load(path)


def test_merge_keeps_the_latest_row_of_a_case():
    old, new = synthetic(), results_file.empty()
    row = {**old["rows"][0], "us": 1.0, "commit": "def"}
    results_file.put(new, row, {"date": "tomorrow"})
    new["header"] = {"gpu": "NVIDIA H200", "torch": "3"}
    count = len(old["rows"])
    results_file.merge(old, new)
    assert len(old["rows"]) == count and old["rows"][0] == row
    assert old["header"]["torch"] == "3"
    assert old["details"][results_file.key(row)] == {"date": "tomorrow"}


def test_commit_is_named_or_unknown(monkeypatch, tmp_path):
    assert re.fullmatch(r"[0-9a-f]{7,}\+?|unknown", results_file.commit())
    monkeypatch.setattr(results_file, "RESULTS", tmp_path / "no" / "checkout")
    assert results_file.commit() == "unknown"
