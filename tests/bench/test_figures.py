"""The figures and the sample output in the guides."""

import json
import re
import shutil

import pytest
import torch

from benchmarks.report import error_picture, figures
from tcgemm import emulate
from tcgemm.numerics import accumulation, formats, low_precision, machine

from support import pages
from support.source_tree import ROOT

TABLES = figures.tables()


@pytest.mark.parametrize("path", figures.pages(), ids=lambda path: path.stem)
def test_figures_are_those_of_the_results(path):
    text = path.read_text()
    assert figures.written(text, TABLES) == text, "run: python -m benchmarks figures"
    assert text.count("<!-- figures:") == text.count("<!-- /figures -->")
    assert text.count("<!-- figures:") == len(figures.BETWEEN.findall(text))


def test_every_table_is_on_one_page():
    texts = "".join(path.read_text() for path in figures.pages())
    assert sorted(re.findall(r"<!-- figures: (\S+) -->", texts)) == sorted(TABLES)


def test_the_command_writes_the_pages(tmp_path):
    shutil.copytree(figures.DOCS / "guides", tmp_path / "guides")
    page = tmp_path / "numerics" / "index.md"
    page.parent.mkdir()
    page.write_text("before\n<!-- figures: ragged -->\nold\n<!-- /figures -->\nafter\n")
    assert figures.main(["--docs", str(tmp_path)]) == 0
    lines = ["before", "<!-- figures: ragged -->", *TABLES["ragged"], "<!-- /figures -->", "after"]
    assert page.read_text().splitlines() == lines
    for path in (figures.DOCS / "guides").glob("*.md"):
        assert (tmp_path / "guides" / path.name).read_text() == path.read_text()


def test_the_sample_output_of_explain_is_what_it_prints(capsys):
    pages.run("docs/guides/eight-bits.md")
    printed = capsys.readouterr().out.splitlines()
    text = (ROOT / "docs/guides/eight-bits.md").read_text()
    shown = re.findall(r"^ {4}((?:layout|swap A/B|RS operand|repack) .*)$", text, re.MULTILINE)
    assert len(shown) == 4
    assert [line for line in shown if f"  {line}" not in printed] == []


def test_a_swap_s_times_and_picture_are_shown():
    names = ["torch", "Linear"]
    found = {
        "variants": [{"variant": n, "weight_bytes": 3e9, "difference": 0.004} for n in names],
        "rows": [
            {"variant": name, "tokens": tokens, "mode": mode, "us": us}
            for name, us in zip(names, (500.0, 2000.0), strict=True)
            for tokens in (1, 16)
            for mode in ("graph", "eager")
        ],
    }
    lines = figures.swap(found)
    assert "(../pictures/swap_h200.svg)" in lines[0]
    assert "| 16 tokens, called from Python | 500 us | 2 ms |" in lines
    assert "| memory of the model | 3.00 GB | 3.00 GB |" in lines and len(lines) == 10
    assert figures.swap(None) == []


def test_the_stored_sums_are_those_of_the_emulator():
    """A part of benchmarks/results/numerics/emulated.json, computed again."""
    stored = error_picture.load()
    machines = [machine.emulated(name) for name in ("A100", "H200")]
    assert stored["tables"] == [low_precision.run(machines).facts()]
    assert stored["formats"] == [formats.run().facts()]
    a, b = accumulation.operands(512, "uniform", torch.float8_e4m3fn, 8)
    sums = emulate.mm(a, b, precision="fast", before_activation=True)
    rms = accumulation.error(sums, a, b)[1]
    found = stored["outside"][1]["curves"]["float8_e4m3fn, fast, uniform"]["512"]
    assert found == pytest.approx(rms, rel=1e-9)


def test_a_gpu_has_the_sums_of_the_emulator():
    """benchmarks/results/numerics/h100.json: what an H100 multiplied, beside emulated GPUs."""
    stored = json.loads((error_picture.FILE.parent / "h100.json").read_text())
    gpu = stored["header"]["gpu"]
    assert stored["compared"] == {gpu: [29_423_104, 0]}
    assert all(row[gpu] == row["H200"] for row in stored["tables"][0]["rows"])
    assert all(row[f"wrong on {gpu}"] == 0 for row in stored["integers"][0]["rows"])

    def rows_on(name, gpu):
        return [row | {"on": None} for row in stored[name][0]["rows"] if row["on"] == gpu]

    for name in ("chain", "outside"):
        assert rows_on(name, gpu) == rows_on(name, "H200") != rows_on(name, "A100")
