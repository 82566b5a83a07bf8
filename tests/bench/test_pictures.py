"""Every picture of the documentation is drawn, and the format that one shows is compress24's."""

from xml.etree import ElementTree

from benchmarks.report import pictures, sparse_format


def test_the_command_draws_every_picture(tmp_path):
    assert pictures.main(["--out", str(tmp_path)]) == 0
    roots = {path.name: ElementTree.parse(path).getroot().tag for path in tmp_path.iterdir()}
    assert roots.keys() == {path.name for path in pictures.FOLDER.glob("*.svg")}
    assert all(tag.endswith("svg") for tag in roots.values())


def test_the_format_shown_is_that_of_compress24():
    values, positions, octets = sparse_format.parts()
    row = [0] * len(sparse_format.ROW)
    for index, (value, position) in enumerate(zip(values, positions, strict=True)):
        row[index // 2 * 4 + position] = value
    assert tuple(row) == sparse_format.ROW and len(octets) == 2
