"""Every picture of the documentation shows what the results say now."""

import re
from xml.etree import ElementTree

import pytest

from benchmarks.report import diagrams, models, overview, pictures, sums
from tcgemm import _plots
from tcgemm.measure.results import Results

from support.bench_fixtures import HEADER, row_of_model

pytest.importorskip("matplotlib")


def texts(path):
    """The texts of an SVG file."""
    root = ElementTree.parse(path).getroot()
    assert root.tag.endswith("svg")
    return ["".join(text.itertext()) for text in root.iter(f"{root.tag[:-3]}text")]


def bars(figure):
    """[(its name, length, number beside it)] of every bar of a figure."""
    result = []
    for row in figure.subfigs:
        names = [label.get_text() for label in row.axes[0].get_yticklabels()]
        for axes in row.axes:
            lengths = [patch.get_width() for patch in axes.patches]
            numbers = [text.get_text() for text in axes.texts]
            result += zip(names, lengths, numbers, strict=True)
    return result


def test_the_command_draws_the_pictures_that_are_stored(tmp_path):
    assert pictures.main(["--out", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {path.name for path in pictures.FOLDER.iterdir()}
    for name in filter(re.compile(".*svg").match, names):
        assert texts(tmp_path / name), name
        stored = texts(pictures.FOLDER / name)
        assert texts(tmp_path / name) == stored, f"{name} is old: run python -m benchmarks pictures"


def of_set(name):
    """Rows of the set models or swap, as of an H200."""
    cases = {
        "models": ({"task": "train", "batch": 4, "tokens": 2048, "graph": False}, {}),
        "swap": ({"tokens": 1}, {"tokens": 64}, {"tokens": 64, "graph": False}),
    }[name]
    rows = []
    for case in cases:
        for place, variant in enumerate(("torch", "torch compiled", "Linear", "PackedLinear int4")):
            facts = {"held_bytes": 1e9 + 1e7 * len(variant)}
            ratios = {"torch": 1 + place / 8 + len(rows) / 100} if place else {}
            rows.append(row_of_model(name, variant, 10.0, ratios=ratios, facts=facts, **case))
    return Results.of(rows, HEADER)


@pytest.mark.parametrize("name", ["models", "swap"])
def test_every_ratio_is_a_bar_with_its_name_and_number(name):
    measured, draw = of_set(name), getattr(models, name)
    expected = [(row["function"], overview.ratio(row) or 1.0) for row in measured.rows]
    if name == "swap":
        memory = {row["function"]: row["facts"]["held_bytes"] / 1e9 for row in measured.rows}
        expected += memory.items()
    shown = bars(draw(measured))
    names = sorted((name, number) for name, _, number in shown)
    assert names == sorted((models.bar_name(v), f"{x:.2f}") for v, x in expected)
    assert all(f"{length:.2f}" == number for _, length, number in shown)
    assert draw(Results()) is None


def test_a_bar_that_was_not_measured_is_missing():
    rows = {"speed": {"1": {"torch": 1.0, "a": 2.0}, "2": {"torch": 1.0}}}
    shown = [(name, number) for name, _, number in bars(models.bar_rows("", "", rows))]
    assert shown == [("torch", "1.00"), ("a", "2.00"), ("torch", "1.00"), ("a", "-")]


def test_lines_and_bars_have_distinct_colours():
    for count in (1, 8, 30):
        names = [str(number) for number in range(count)]
        assert len(set(_plots.colours(names).values())) == count
    for draw in (sums.sums, sums.chain):
        for axes in draw().axes:
            lines = axes.get_lines()
            assert len({line.get_color() for line in lines}) == len(lines) > 2


def test_the_format_shown_is_that_of_compress24():
    values, positions, octets = diagrams.compressed()
    row = [0] * len(diagrams.SPARSE_ROW)
    for index, (value, position) in enumerate(zip(values, positions, strict=True)):
        row[index // 2 * 4 + position] = value
    assert tuple(row) == diagrams.SPARSE_ROW and len(octets) == 2
