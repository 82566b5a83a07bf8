"""The Python blocks of a page of the documentation, and its commands."""

import ast
import re

from support.source_tree import ROOT

# What a command begins with, after the variables that it gets.
COMMAND = re.compile(
    r"(?:[A-Z][A-Z_]+=\S* )*"
    r"(?:tcgemm|python3? -m \w+|python3? [\w/]+\.py|make|pip|git|sudo|torchrun)(?: .*)?"
)


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


def imported(block: str) -> set[str]:
    """The names that a block imports."""
    return {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def without_import(page: str) -> list[str]:
    """The imported names that a block of a page uses, where an earlier block imports them."""
    earlier: set[str] = set()
    missing = []
    for number, block in enumerate(blocks(page), 1):
        used = {node.id for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Name)}
        missing += [f"block {number}: {name}" for name in sorted(used & earlier - imported(block))]
        earlier |= imported(block)
    return missing


def commands(page: str) -> list[str]:
    """The commands of a page: lines of code, and code within a line, each without its comment."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^    (\S.*)$", text, re.MULTILINE)
    words = [re.split(r" {2,}|\s+#\s", line)[0] for line in lines]
    words += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]
    return [word for word in words if COMMAND.fullmatch(word)]
