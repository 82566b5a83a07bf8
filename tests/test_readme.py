"""The README's Python runs as it stands."""

import pathlib
import re

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_examples_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})
    said = capsys.readouterr().out
    assert "TMA can read it" in said
    assert "sm90a_bf16_f32" in said
    assert "filter_fn said no" in said
