"""Every picture of the documentation shows what the results say now."""

import shutil
import statistics
from xml.etree import ElementTree

import pytest

from benchmarks import RESULTS, report
from benchmarks.report import diagrams, measured, overview, pictures
from tcgemm import _plots

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


FILES = ("swap/h200.json", "models/h200.json")


@pytest.mark.parametrize("file", FILES)
def test_every_ratio_is_a_bar_with_its_name_and_number(file):
    results = measured.load(RESULTS / file)
    if "variants" in results:
        figure, rows = measured.swap(results), results["rows"]
        others = [(each["variant"], each["weight_bytes"] / 1e9) for each in results["variants"]]
    else:
        figure, rows, others = measured.models(results), measured.shown(results), []
    expected = [*((row["variant"], row["ratio"]) for row in rows), *others]
    shown = [(name, number) for name, _, number in bars(figure)]
    assert sorted(shown) == sorted((measured.bar_name(v), f"{x:.2f}") for v, x in expected)
    assert all(f"{length:.2f}" == number for _, length, number in bars(figure))


def test_a_bar_that_was_not_measured_is_missing():
    rows = {"speed": {"1": {"torch": 1.0, "a": 2.0}, "2": {"torch": 1.0}}}
    shown = bars(measured.bar_rows("", "", rows))
    assert [(name, number) for name, _, number in shown] == [
        *(("torch", "1.00"), ("a", "2.00"), ("torch", "1.00"), ("a", "-"))
    ]


def test_gpus_have_pictures_of_their_own(tmp_path):
    for file in FILES:
        (tmp_path / file).parent.mkdir()
        for name in ("h100.json", "h200.json"):
            shutil.copy(RESULTS / file, (tmp_path / file).with_name(name))
    shutil.copytree(RESULTS / "numerics", tmp_path / "numerics")
    names = [name for name, _ in pictures.drawn(tmp_path)]
    assert len(names) == len(set(names)) == len(pictures.PICTURES) + len(FILES)


def test_lines_and_bars_have_distinct_colours():
    for count in (1, 8, 30):
        names = [str(number) for number in range(count)]
        assert len(set(_plots.colours(names).values())) == count
    for draw in (measured.sums, measured.chain):
        for axes in draw(measured.load(measured.EMULATED)).axes:
            lines = axes.get_lines()
            assert len({line.get_color() for line in lines}) == len(lines) > 2


def test_the_format_shown_is_that_of_compress24():
    values, positions, octets = diagrams.compressed()
    row = [0] * len(diagrams.SPARSE_ROW)
    for index, (value, position) in enumerate(zip(values, positions, strict=True)):
        row[index // 2 * 4 + position] = value
    assert tuple(row) == diagrams.SPARSE_ROW and len(octets) == 2
