"""python -m tcgemm numerics."""

import json

import pytest

from tcgemm import cli
from tcgemm.cli import numerics as command
from tcgemm.numerics import chain


def test_every_experiment(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(chain, "ROUNDS", 5)
    saved, plots = tmp_path / "all.json", tmp_path / "plots"
    assert cli.main(["numerics", "all", "--json", str(saved), "--plot", str(plots)]) == 0
    printed = capsys.readouterr().out
    found = json.loads(saved.read_text())
    assert found.pop("header")["gpu"] == "cpu" and found.pop("compared") == {}
    assert list(found) == list(command.EXPERIMENTS)
    for tables in found.values():
        for table in tables:
            assert table["title"] in printed and table["rows"]
    assert {path.name for path in plots.iterdir()} == {"chain.png", "outside1.png"}
    assert all(path.stat().st_size > 20_000 for path in plots.iterdir())


def test_other_gpus(capsys):
    assert cli.main(["numerics", "tables", "--gpus", "L40S"]) == 0
    assert "L40S" in capsys.readouterr().out


def test_a_product(capsys, tmp_path):
    saved = tmp_path / "kernel.json"
    words = "kernel 256 256 8192 --dtype e4m3 --data uniform --precision fast --device h100"
    assert cli.main(["numerics", *words.split(), "--json", str(saved)]) == 0
    printed = capsys.readouterr().out
    assert 'precision="fast" (planned)' in printed and 'choose precision="promoted"' in printed
    assert json.loads(saved.read_text())["facts"]["gpu"] == "H100"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("chain --gpus B200", "'B200' is no GPU that is known here; expected one of H200"),
        ("kernel 4 4 4 --device B200", "device is 'B200'; expected one of H200"),
        ("kernel 4 4 4 --acc-dtype f16", "acc_dtype is torch.float16"),
        ("kernel 0 4 4", "no elements"),
        ("other", "invalid choice: 'other'"),
        ("", "required: experiment"),
    ],
)
def test_a_sentence_for(words, sentence, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["numerics", *words.split()])
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err
