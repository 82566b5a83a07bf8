"""The pictures in docs/pictures/ are what the script draws."""

from xml.etree import ElementTree

import pytest

from benchmarks.report import pictures, sparse_format

PICTURES = pictures.pictures()


@pytest.mark.parametrize("name", PICTURES)
def test_committed_picture_is_the_script_s(name):
    text = PICTURES[name]()
    path = pictures.FOLDER / name
    assert path.is_file() and path.read_text() == text, "run: python -m benchmarks pictures"
    assert ElementTree.fromstring(text).tag.endswith("svg")


def test_every_result_of_a_swap_has_a_picture(tmp_path, capsys):
    assert pictures.main(["--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(PICTURES)
    assert {path.name for path in pictures.FOLDER.glob("swap_*.svg")} <= set(PICTURES)


def test_the_format_shown_is_that_of_compress24():
    values, positions, octets = sparse_format.parts()
    row = [0] * len(sparse_format.ROW)
    for index, (value, position) in enumerate(zip(values, positions, strict=True)):
        row[index // 2 * 4 + position] = value
    assert tuple(row) == sparse_format.ROW and len(octets) == 2
    text = sparse_format.draw()
    assert "byte 10 00 11 00" in text
