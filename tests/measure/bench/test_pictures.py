"""Every picture of the documentation shows what the results say now."""

import re
import statistics
from xml.etree import ElementTree

import pytest

from benchmarks import RESULTS, report
from benchmarks.models import record
from benchmarks.report import models_picture, overview, pictures, sparse_format, swap_picture

pytest.importorskip("matplotlib")


def texts(path):
    """The texts of an SVG file."""
    root = ElementTree.parse(path).getroot()
    assert root.tag.endswith("svg")
    return ["".join(text.itertext()) for text in root.iter(f"{root.tag[:-3]}text")]


def bars(figure):
    """How many bars each panel has, and how many of them have a number."""
    return [
        (len(axes.patches), sum(bool(re.match(r"\d\.\d", text.get_text())) for text in axes.texts))
        for axes in figure.axes
    ]


def test_the_command_draws_the_pictures_that_are_stored(tmp_path):
    assert pictures.main(["--out", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {path.name for path in pictures.FOLDER.glob("*.svg")}
    for name in names:
        assert texts(tmp_path / name), name
        stored = texts(pictures.FOLDER / name)
        assert texts(tmp_path / name) == stored, f"{name} is old: run python -m benchmarks pictures"


@pytest.mark.parametrize("gpu", ["h200", "h100-80gb-hbm3"])
def test_the_overview_names_every_group_and_its_mean(gpu):
    groups = overview.measured_groups(report.load(RESULTS / f"{gpu}.json"))
    shown = texts(RESULTS / f"{gpu}-ratios.svg")
    assert len(groups) > 3
    for group, ratios in groups:
        assert {group.name, f"{statistics.geometric_mean(ratios):.2f}"} <= set(shown)


def test_every_ratio_is_a_bar_with_its_number():
    results = swap_picture.load(RESULTS / "swap" / "h200.json")
    ratios = [row for row in results["rows"] if row["ratio"] and row["variant"] != "torch"]
    *panels, memory = bars(swap_picture.draw(results))
    assert sum(count for count, _ in panels) == len(ratios)
    assert memory[0] == len(results["variants"])
    results = record.load(RESULTS / record.FOLDER / "h200.json")
    panels += bars(models_picture.draw(results))
    shown = [row for row in models_picture.shown(results) if row["variant"] != "torch"]
    assert sum(count for count, _ in panels) == len(ratios) + len(shown)
    assert all(count == numbers for count, numbers in [*panels, memory])


def test_the_format_shown_is_that_of_compress24():
    values, positions, octets = sparse_format.parts()
    row = [0] * len(sparse_format.ROW)
    for index, (value, position) in enumerate(zip(values, positions, strict=True)):
        row[index // 2 * 4 + position] = value
    assert tuple(row) == sparse_format.ROW and len(octets) == 2
