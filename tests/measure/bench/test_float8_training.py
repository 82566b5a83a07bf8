"""The measurement of a training step with Float8Linear, on the CPU and on a GPU."""

import json

import pytest
import torch

from benchmarks import __main__, float8_training

KEYS = {"size", "layers", "mode", "variant", "us", "ratio", "repetitions", "difference"}
KEYS |= {"clock_mhz", "power_w"}
PLACES = {(size, layers) for size in ("16x32", "32x32") for layers in (1, 3)}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("float8") / "cpu.json"
    arguments = ["--device", "cpu", "--tokens", "8", "--sizes", "16x32,32x32", "--layers", "1,3"]
    arguments += ["--ms", "2", "--repetitions", "2", "--out", str(path)]
    assert __main__.main(["float8", *arguments]) == 0
    return json.loads(path.read_text())


def test_rows_hold_every_stack_and_variant(results):
    rows = {(row["size"], row["layers"], row["variant"]): row for row in results["rows"]}
    assert set(rows) == {(*place, name) for place in PLACES for name in float8_training.VARIANTS}
    for row in results["rows"]:
        assert set(row) == KEYS and row["repetitions"] == 2 and row["mode"] == "eager"
        for middle, low, high in (row["us"], row["ratio"]):
            assert 0 < low <= middle <= high
        if row["variant"] == "Linear":
            assert row["ratio"] == [1, 1, 1] and row["difference"] == 0
        else:
            assert 0.001 < row["difference"] < 0.2  # 8 bits
    header = results["header"]
    assert (header["gpu"], header["tokens"], header["dtype"]) == ("cpu", 8, "bfloat16")
    assert header["commit"] and header["torch"] == torch.__version__


def test_a_step_changes_no_weight_and_moves_the_history():
    nets = float8_training.models("16x32", 3, torch.device("cpu"))
    assert [tuple(layer.weight.shape) for layer in nets["Linear"]] == [(32, 16), (16, 32), (32, 16)]
    before = nets["delayed"][0].weight.detach().clone()
    x = torch.randn(8, 16, dtype=torch.bfloat16)
    step = float8_training.Step(nets["delayed"], x, torch.ones(8, 32, dtype=torch.bfloat16))
    for index in range(2):
        step(index)
    assert torch.equal(nets["delayed"][0].weight, before) and step.x.grad.abs().max() > 0
    assert (nets["delayed"][0].amax_history[:, :2] > 0).all()
    assert type(nets["current"][0]) is type(nets["delayed"][0]) is not type(nets["Linear"][0])


@pytest.mark.gpu
def test_on_a_gpu_a_step_runs_in_a_graph(tmp_path):
    path = tmp_path / "gpu.json"
    arguments = ["--tokens", "64", "--sizes", "64x128", "--layers", "2", "--ms", "5"]
    assert __main__.main(["float8", *arguments, "--out", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert {(row["mode"], row["variant"]) for row in rows} == {
        (mode, name) for mode in ("graph", "eager") for name in float8_training.VARIANTS
    }
