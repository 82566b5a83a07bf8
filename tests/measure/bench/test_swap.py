"""The measurement of a model before and after swap_linear."""

import pytest
import torch

from benchmarks import __main__
from benchmarks.models.stack import Sizes
from benchmarks.report import measured
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
    return measured.load(path)


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
    variants = {variant["variant"]: variant for variant in results["variants"]}
    sizes = {name: variant["weight_bytes"] for name, variant in variants.items()}
    linear = 4 * 64 * 64 - 2 * 64 * 32 + 3 * 64 * 128  # weights of the layers, the head aside
    assert sizes["Linear"] == sizes["torch"]
    assert sizes["torch"] - sizes["QuantLinear int8"] == linear - 4 * (3 * 64 + 2 * 32 + 2 * 128)
    assert sizes["torch"] - sizes["SparseLinear24"] == linear - linear // 8
    assert variants["Linear"]["difference"] < variants["QuantLinear int8"]["difference"] < 0.05
    assert variants["SparseLinear24"]["difference"] < 0.5


@pytest.mark.gpu
def test_a_gpu_measures_both_modes():
    sizes = Sizes(**SMALL | {"hidden": 512, "intermediate": 1024, "vocabulary": 1000})
    table = measure.measure(sizes, (1, 8), torch.device("cuda", 0), 5.0)
    assert {row["mode"] for row in table["rows"]} == {"graph", "eager"}
    assert len(table["rows"]) == 2 * 2 * len(measure.VARIANTS)
    memory = {variant["variant"]: variant["weight_bytes"] for variant in table["variants"]}
    assert memory["QuantLinear e4m3"] < 0.8 * memory["torch"]
    assert memory["SparseLinear24"] < 0.9 * memory["torch"]
    assert all(variant["peak_bytes"] > 0 for variant in table["variants"])
