"""The examples of docs/guides/layers.md run as they stand, one after the other."""

import re

from support import pages
from support.source_tree import ROOT


def test_examples_run(capsys):
    pages.run("docs/guides/layers.md")
    output = capsys.readouterr().out
    text = (ROOT / "docs/guides/layers.md").read_text()
    head = re.search(r"^    (\d+ swapped, .*)$", text, flags=re.M).group(1)
    assert head in output and "  swapped  layers.0.self_attn\n" in output
    assert "shares its weight with embedding;" in output
