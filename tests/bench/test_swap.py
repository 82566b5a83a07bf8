"""The measurement of a model before and after swap_linear."""

import pytest
import torch

from benchmarks import __main__
from benchmarks.models.stack import Sizes
from benchmarks.report import swap_picture
from benchmarks.swap import measure

SMALL = {
    "blocks": 1,
    "hidden": 64,
    "intermediate": 128,
    "heads": 4,
    "kv_heads": 2,
    "vocabulary": 100,
    "positions": 32,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("swap") / "cpu.json"
    sizes = [text for name, size in SMALL.items() for text in (f"--{name}", str(size))]
    arguments = ["--device", "cpu", "--tokens", "8,1", "--ms", "2", "--out", str(path)]
    assert __main__.main(["swap", *arguments, *sizes]) == 0
    return swap_picture.load(path)


@pytest.mark.nightly
def test_rows_hold_every_variant_and_length(results):
    rows = {(row["variant"], row["tokens"], row["mode"]): row for row in results["rows"]}
    assert set(rows) == {(name, count, "eager") for name in measure.VARIANTS for count in (1, 8)}
    for row in results["rows"]:
        baseline = rows["torch", row["tokens"], "eager"]
        assert row["us"] > 0 and row["iqr_us"] >= 0 and row["samples"] > 0
        assert row["ratio"] == pytest.approx(baseline["us"] / row["us"], rel=1e-2)
    assert results["header"]["model"] == SMALL | {"weights": 49856}
    assert results["header"]["commit"] and results["header"]["gpu"] == "cpu"


@pytest.mark.nightly
def test_memory_and_outputs(results):
    found = {each["variant"]: each for each in results["variants"]}
    held = {name: each["weight_bytes"] for name, each in found.items()}
    linear = 4 * 64 * 64 - 2 * 64 * 32 + 3 * 64 * 128  # weights of the layers, the head aside
    assert held["Linear"] == held["torch"]
    assert held["torch"] - held["QuantLinear int8"] == linear - 4 * (3 * 64 + 2 * 32 + 2 * 128)
    assert held["torch"] - held["SparseLinear24"] == linear - linear // 8
    assert found["Linear"]["difference"] < found["QuantLinear int8"]["difference"] < 0.05
    assert found["SparseLinear24"]["difference"] < 0.5


@pytest.mark.gpu
def test_a_gpu_measures_both_modes():
    sizes = Sizes(**SMALL | {"hidden": 512, "intermediate": 1024, "vocabulary": 1000})
    found = measure.measure(sizes, (1, 8), torch.device("cuda", 0), 5.0)
    assert {row["mode"] for row in found["rows"]} == {"graph", "eager"}
    assert len(found["rows"]) == 2 * 2 * len(measure.VARIANTS)
    held = {each["variant"]: each["weight_bytes"] for each in found["variants"]}
    assert held["QuantLinear e4m3"] < 0.8 * held["torch"]
    assert held["SparseLinear24"] < 0.9 * held["torch"]
    assert all(each["peak_bytes"] > 0 for each in found["variants"])
