"""The examples of docs/swap.md run as they stand, one after the other."""

import re

from support.source_tree import ROOT


def test_examples_run(capsys):
    text = (ROOT / "docs" / "swap.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(compile(block, "docs/swap.md", "exec"), names)
    said = capsys.readouterr().out
    head = re.search(r"^    (\d+ swapped, .*)$", text, flags=re.M).group(1)
    assert head in said and "  swapped  layers.0.self_attn\n" in said
    assert "shares its weight with embedding;" in said
