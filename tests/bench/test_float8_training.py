"""The measurement of a training step with Float8Linear, on the CPU, and without a GPU."""

import json

import pytest
import torch

from benchmarks import RESULTS, __main__, float8_training, medians

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
    made = float8_training.models("16x32", 3, torch.device("cpu"))
    assert [tuple(layer.weight.shape) for layer in made["Linear"]] == [(32, 16), (16, 32), (32, 16)]
    before = made["delayed"][0].weight.detach().clone()
    x = torch.randn(8, 16, dtype=torch.bfloat16)
    step = float8_training.Step(made["delayed"], x, torch.ones(8, 32, dtype=torch.bfloat16))
    for index in range(2):
        step(index)
    assert torch.equal(made["delayed"][0].weight, before) and step.x.grad.abs().max() > 0
    assert (made["delayed"][0].amax_history[:, :2] > 0).all()
    assert type(made["current"][0]) is type(made["delayed"][0]) is not type(made["Linear"][0])


def test_without_a_gpu_stored_results_are_shown(results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    medians.save(results, tmp_path / "stored.json")
    assert __main__.main(["float8", "--stored", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "torch finds none here. Stored results:" in said and "stored.json" in said
    assert "3 x 16x32       eager delayed" in said and "x Linear's speed (" in said
    assert __main__.main(["float8", "--stored", str(tmp_path / "none")]) == 0
    assert "has no stored results" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--sizes", "4096"], "--sizes is 4096, but it must have in_features and out_features"),
        (["--layers", "0"], "--layers is 0, but it must have numbers of layers; pass 1,4."),
        (["--tokens", "0"], "--tokens is 0, --repetitions 3 and --ms 150, but all must be positi"),
    ],
)
def test_bad_options_are_refused(arguments, sentence, capsys):
    with pytest.raises(SystemExit):
        float8_training.parse(arguments)
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_stored_results_are_whole():
    places = {(n, size) for n in float8_training.LAYERS for size in float8_training.SIZES}
    wanted = {
        (*place, mode, name)
        for place in places
        for mode in float8_training.MODES["cuda"]
        for name in float8_training.VARIANTS
    }
    for path in (RESULTS / "float8").glob("*.json"):
        stored = json.loads(path.read_text())
        names = ("layers", "size", "mode", "variant")
        assert {tuple(row[name] for name in names) for row in stored["rows"]} == wanted
        assert stored["header"]["driver"] and stored["header"]["commit"] != "unknown"


@pytest.mark.gpu
def test_on_a_gpu_a_step_runs_in_a_graph(tmp_path):
    path = tmp_path / "gpu.json"
    arguments = ["--tokens", "64", "--sizes", "64x128", "--layers", "2", "--ms", "5"]
    assert __main__.main(["float8", *arguments, "--out", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert {(row["mode"], row["variant"]) for row in rows} == {
        (mode, name) for mode in ("graph", "eager") for name in float8_training.VARIANTS
    }
