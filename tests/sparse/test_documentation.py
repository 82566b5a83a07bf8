"""The examples of docs/sparse.md run as they stand, one after the other."""

import re

from support.source_tree import ROOT


def test_the_examples_run():
    text = (ROOT / "docs" / "sparse.md").read_text()
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    for block in blocks:
        exec(compile(block, "docs/sparse.md", "exec"), names)
    assert len(blocks) == 3
