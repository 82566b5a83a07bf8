"""The command `tcgemm numerics`."""

import json

import pytest

from tcgemm import cli
from tcgemm.cli import numerics as command
from tcgemm.numerics import chain


def test_every_experiment(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(chain, "ROUNDS", 5)
    file, plots = tmp_path / "all.json", tmp_path / "plots"
    assert cli.main(["numerics", "all", "--json", str(file), "--plot", str(plots)]) == 0
    text = capsys.readouterr().out
    content = json.loads(file.read_text())
    assert content.pop("header")["gpu"] == "cpu" and content.pop("compared") == {}
    assert list(content) == list(command.EXPERIMENTS)
    for tables in content.values():
        for table in tables:
            assert table["title"] in text and table["rows"]
    assert {path.name for path in plots.iterdir()} == {
        *("chain-A100-H200.png", "outside1-A100-H200.png"),
    }
    assert all(path.stat().st_size > 20_000 for path in plots.iterdir())


def test_other_gpus(capsys):
    assert cli.main(["numerics", "tables", "--gpus", "L40S"]) == 0
    assert "L40S" in capsys.readouterr().out


def test_a_product(capsys, tmp_path):
    path = tmp_path / "kernel.json"
    words = "kernel 256 256 8192 --dtype e4m3 --data uniform --precision fast --device h100"
    assert cli.main(["numerics", *words.split(), "--json", str(path)]) == 0
    text = capsys.readouterr().out
    assert 'precision="fast" (planned)' in text and 'choose precision="promoted"' in text
    assert json.loads(path.read_text())["facts"]["gpu"] == "H100"


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
    with pytest.raises(SystemExit) as error:
        cli.main(["numerics", *words.split()])
    assert error.value.code == 2
    assert sentence in capsys.readouterr().err


def test_pictures_need_matplotlib(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        cli.main(["numerics", "formats", "--plot", str(tmp_path)])
    assert capsys.readouterr().err.endswith(
        "error: --plot needs matplotlib: pip install matplotlib.\n"
    )
