"""Every picture of the documentation shows what the results say now."""

import re
import statistics
from xml.etree import ElementTree

import pytest

from benchmarks import RESULTS
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


@pytest.mark.parametrize("gpu", ["h200", "h100-80gb-hbm3"])
def test_the_overview_names_every_group_and_its_mean(gpu):
    groups = overview.measured_groups(Results.load(RESULTS / f"{gpu}.json"))
    shown = texts(pictures.FOLDER / f"ratios_{gpu}.svg")
    assert len(groups) > 3
    for name, _, ratios in groups:
        assert {name, f"{statistics.geometric_mean(ratios):.2f}"} <= set(shown)


def of_models():
    """Rows of the sets models and swap, as of an H200."""
    rows, ratio = [], 1.0
    for name, case in (
        *(("models", {"task": "train", "batch": 4, "tokens": 2048}), ("models", {})),
        *(("swap", {"tokens": 1}), ("swap", {"tokens": 64})),
    ):
        for variant in ("torch", "torch compiled", "Linear", "PackedLinear int4"):
            for graph in (False,) if "task" in case else (True, False):
                ratio += 0.01
                ratios = {} if variant == "torch" else {"torch": ratio}
                facts = {"held_bytes": 1e9 + 1e7 * len(variant)}
                measured_fields = {"graph": graph, "ratios": ratios, "facts": facts}
                rows.append(row_of_model(name, variant, 10.0, **case | measured_fields))
    return Results.of(rows, HEADER)


@pytest.mark.parametrize("name", ["models", "swap"])
def test_every_ratio_is_a_bar_with_its_name_and_number(name):
    results = of_models()
    figure = getattr(models, name)(results)
    rows = models.shown(results) if name == "models" else models.of_set(results, "swap")
    expected = [(row["function"], overview.ratio(row) or 1.0) for row in rows]
    if name == "swap":
        memory = {row["function"]: row["facts"]["held_bytes"] / 1e9 for row in rows}
        expected += memory.items()
    shown = [(name, number) for name, _, number in bars(figure)]
    assert sorted(shown) == sorted((models.bar_name(v), f"{x:.2f}") for v, x in expected)
    assert all(f"{length:.2f}" == number for _, length, number in bars(figure))
    assert getattr(models, name)(Results()) is None


def test_a_bar_that_was_not_measured_is_missing():
    rows = {"speed": {"1": {"torch": 1.0, "a": 2.0}, "2": {"torch": 1.0}}}
    shown = bars(models.bar_rows("", "", rows))
    assert [(name, number) for name, _, number in shown] == [
        *(("torch", "1.00"), ("a", "2.00"), ("torch", "1.00"), ("a", "-"))
    ]


def test_gpus_have_pictures_of_their_own(tmp_path):
    for name in ("h100", "h200"):
        of_models().save(tmp_path / f"{name}.json")
    names = [name for name, _ in pictures.drawn(tmp_path)]
    assert len(names) == len(set(names))
    expected = {f"{kind}_{gpu}.svg" for kind in ("models", "swap") for gpu in ("h100", "h200")}
    assert {name for name in names if "_" in name} == expected


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
