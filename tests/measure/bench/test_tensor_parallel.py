"""The measurement of a tensor-parallel MLP: in two processes on the CPU."""

import json

import pytest
import torch

from benchmarks import __main__, tensor_parallel

SMALL = {"tokens": 32, "hidden": 64, "intermediate": 128}
KEYS = {"variant", "task", "us", "ratio", "rounds", "difference", "clock_mhz", "power_w"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("tensor_parallel") / "cpu.json"
    sizes = [text for name, size in SMALL.items() for text in (f"--{name}", str(size))]
    arguments = ["--device", "cpu", "--rounds", "3", "--ms", "2", "--out", str(path)]
    assert __main__.main(["tensor_parallel", *arguments, *sizes]) == 0
    return json.loads(path.read_text())


@pytest.mark.nightly
def test_rows_hold_every_variant_and_task(results):
    rows = {(row["variant"], row["task"]): row for row in results["rows"]}
    expected = {(name, task) for task, names in tensor_parallel.TASKS.items() for name in names}
    assert set(rows) == expected and len(expected) == 6
    for row in results["rows"]:
        assert set(row) == KEYS and row["rounds"] == 3
        for middle, low, high in (row["us"], row["ratio"]):
            assert 0 < low <= middle <= high
    assert rows["torch", "forward"]["ratio"] == [1, 1, 1]
    header = results["header"]
    assert {name: header[name] for name in SMALL} == SMALL
    assert (header["gpu"], header["backend"], header["processes"]) == ("cpu", "gloo", 2)
    assert header["commit"] and header["torch"] == torch.__version__


@pytest.mark.nightly
def test_the_variants_compute_the_same(results):
    far = {row["variant"]: row["difference"] for row in results["rows"]}
    assert far["torch"] == 0
    assert far["Linear"] < 0.01 < far["QuantLinear e4m3"] < 0.1
    assert 0 < far["QuantLinear int8"] < 0.05


def test_rounds_alternate_and_the_first_one_does_not_count(monkeypatch):
    order = []

    def seconds(call, calls, device):
        order.append((call, calls))
        return 1e-3 * len(order)

    monkeypatch.setattr(tensor_parallel, "seconds", seconds)
    monkeypatch.setattr(tensor_parallel, "slowest", lambda value, device: value)
    monkeypatch.setattr(tensor_parallel.dist, "barrier", lambda: None)
    times = tensor_parallel.samples({"a": 1, "b": 2}, 2, 4.0, torch.device("cpu"))
    # 1 ms a call of the first work and 2 ms of the second one: four calls and two in 4 ms.
    assert order[:4] == [(1, 2), (1, 2), (2, 2), (2, 2)]
    assert order[4:] == [(1, 4), (2, 2), (2, 2), (1, 4), (1, 4), (2, 2)]
    assert times["a"] == pytest.approx([8e3 / 4, 9e3 / 4])
    assert times["b"] == pytest.approx([7e3 / 2, 10e3 / 2])
