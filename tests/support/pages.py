"""The Python blocks of a page of the documentation."""

import re

from support.source_tree import ROOT


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run(page: str) -> dict[str, object]:
    """Runs the blocks one after another, and returns the names that they define."""
    names: dict[str, object] = {}
    programs = blocks(page)
    assert programs, f"{page} has no Python block"
    for block in programs:
        exec(compile(block, page, "exec"), names)
    return names
