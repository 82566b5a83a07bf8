"""The examples of docs/use.md run as they stand, one after another."""

import re

from support.source_tree import ROOT


def test_examples_run(capsys):
    text = (ROOT / "docs/use.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/use.md", "exec"), names)
    said = capsys.readouterr().out
    assert "5 products taken (100.0% of the FLOPs), 0 left to torch" in said
    assert "{'torch.float32 is not among dtypes': 2}" in said
    assert "torch is faster at the nearest size of the table, 32 x 10 x 128" in said
