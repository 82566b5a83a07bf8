"""The README's Python runs as it stands, and its tables are those of the code."""

import re
from pathlib import Path

from tcgemm import info

from support.source_tree import CPP, ROOT, tree

README = (ROOT / "README.md").read_text()


def test_examples_run(capsys):
    text = README
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "TMA can read it" in said
    assert "sm90a_bf16_f32" in said
    assert "filter_fn said no" in said
    shown = re.findall(r"^ +((?:layout|swap A/B|RS operand|repack) {3,}.*)$", text, flags=re.M)
    assert len(shown) == 4 and all(line in said for line in shown)


def test_support_table_is_the_catalog():
    table = re.search(r"<!-- support -->\n(.*?)\n<!-- /support -->", README, re.DOTALL).group(1)
    assert table.strip() == info.support_table().strip(), "run: python -m tcgemm --support-table"


def test_environment_variables_stand_in_the_readme():
    read = set()
    for path, text in {**tree(*CPP, ".py"), "Makefile": (ROOT / "Makefile").read_text()}.items():
        if not Path(path).name.startswith("test_"):
            read |= set(re.findall(r"(?:environ|getenv)\b[^\n]*?\b(TCGEMM_[A-Z_]+)", text))
    listed = set(re.findall(r"^\| `(TCGEMM_[A-Z_]+)", README, re.MULTILINE))
    assert read
    assert read == listed
