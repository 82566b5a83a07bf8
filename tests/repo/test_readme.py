"""README.md: short, true, and its Python runs as it stands."""

import re

from support import pages
from support.source_tree import ROOT

README = (ROOT / "README.md").read_text()
MAX_LINES = 150
MAX_TABLE = 20
MAX_EXAMPLE = 8


def test_readme_is_short():
    assert README.count("\n") <= MAX_LINES
    tables = re.findall(r"(?:^\|.*\n)+", README, re.MULTILINE)
    assert tables and all(table.count("\n") <= MAX_TABLE for table in tables)
    assert len(re.findall(r"^!\[", README, re.MULTILINE)) == 1, "one picture"


def test_example_runs(capsys):
    (block,) = pages.blocks("README.md")
    assert len([line for line in block.splitlines() if line]) <= MAX_EXAMPLE
    pages.run("README.md")
    said = capsys.readouterr().out
    assert "1 swapped, 0 skipped" in said and "x torch" in said
    assert re.search(r"kernel +sm\d+a?_bf16_f32", said)


def test_links_lead_somewhere():
    links = re.findall(r"\]\((?!\w+:)([^)#]+)\)", README)
    assert "docs/install.md" in links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_two_commands_set_up_everything():
    """`make demo` and `make test`; the second is what the continuous integration runs."""
    assert re.search(r"^    make demo\b", README, re.MULTILINE)
    (command,) = re.findall(r"^exec (.+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert command == "make test"
    assert re.search(rf"^    {command}\b", README, re.MULTILINE)
