"""tcgemm.measure.formats: speed, memory and error of the formats of a weight."""

import pytest
import torch

from tcgemm.measure import formats, results
from tcgemm.measure.results import Results

BITS = {"bf16": 16, "e4m3": 8, "int8": 8, "int4": 4, "nf4": 4, "mxfp4": 4, "2:4": 9}


def test_layers():
    measured = formats.of_layers(rows=[4], size=256, seconds=0.001, device="cpu")
    rows = {row["format"]: row for row in measured.rows}
    assert list(rows) == list(formats.FORMATS)
    for name, row in rows.items():
        bits = 8 * row["facts"]["stored_bytes"] / 256**2
        assert BITS[name] <= bits < BITS[name] + 0.5, name
        assert (row["m"], row["n"], row["k"]) == (4, 256, 256) and row["us"] > 0, name
        assert row["ratios"].keys() == {"torch"}, name
    errors = [rows[name]["facts"]["error"] for name in ("bf16", "int8", "e4m3", "int4", "2:4")]
    assert errors == sorted(errors) and errors[0] < 1e-3 < errors[1]


def test_the_file_of_a_gpu(tmp_path, monkeypatch):
    measured = formats.of_layers(rows=[4], size=64, formats=["int4"], seconds=0.001, device="cpu")
    measured.header["gpu"] = "NVIDIA H200"
    assert formats.save(measured, tmp_path / formats.SET) == tmp_path / formats.SET / "h200.json"
    monkeypatch.setattr(results, "RECORDED", (tmp_path,))
    (loaded,) = formats.recorded.__wrapped__().values()
    assert loaded.rows[0]["facts"] == measured.rows[0]["facts"]


def test_stored_measurements():
    assert "NVIDIA H200" in formats.recorded()
    for gpu, measured in formats.recorded().items():
        assert {(row["format"], row["m"]) for row in measured.rows} == {
            (name, m) for name in formats.FORMATS for m in formats.ROWS
        }, gpu
        assert all(row["us"] and row["ratios"]["torch"] for row in measured.rows), gpu


def test_the_fastest_that_fits():
    def row(name, us, stored):
        facts = {"stored_bytes": stored}
        case = {"set": formats.SET, "format": name, "m": 1, "n": 8, "k": 8}
        return case | {"us": us, "facts": facts}

    measured = Results.of([row("bf16", 4.0, 128), row("int8", 1.0, 66), row("int4", 2.0, 34)])
    assert formats.fastest(measured, 1)["format"] == "int8"
    assert formats.fastest(measured, 1, largest=0.5)["format"] == "int4"
    assert formats.fastest(measured, 1, formats=["bf16", "int4"])["format"] == "int4"
    assert formats.fastest(measured, 1, largest=0.1) is None
    assert formats.fastest(measured, 16) is None


def test_a_model_is_as_before():
    linear = torch.nn.Linear
    model = torch.nn.Sequential(linear(128, 256), torch.nn.ReLU(), linear(256, 128))
    model = model.to("cpu", torch.bfloat16)
    x = torch.randn(4, 128, device="cpu").bfloat16()
    before, classes = model(x), [type(module) for module in model]
    rows = formats.of_model(model, x, formats=["bf16", "int4"], seconds=0.01)
    assert torch.equal(model(x), before) and [type(module) for module in model] == classes
    assert [(row["format"], row["layers"]) for row in rows] == [("bf16", 2), ("int4", 2)]
    assert rows[0]["of bf16"] == 1 and 0.25 < rows[1]["of bf16"] < 0.35
    assert rows[0]["error"] < 0.01 < rows[1]["error"]


def test_an_unknown_format():
    with pytest.raises(ValueError, match="'int3' is no format; expected one of bf16, e4m3"):
        formats.of_layers(formats=["int3"], device="cpu")
