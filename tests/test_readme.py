"""The README's Python runs as it stands."""

import pathlib
import re

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_examples_run(capsys):
    text = README.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})
    said = capsys.readouterr().out
    assert "TMA can read it" in said
    assert "sm90a_bf16_f32" in said
    assert "filter_fn said no" in said
    shown = re.findall(r"^ +((?:layout|swap A/B|RS operand|repack) {3,}.*)$", text, flags=re.M)
    assert len(shown) == 4 and all(line in said for line in shown)
