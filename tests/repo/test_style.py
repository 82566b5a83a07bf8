"""Short files and lines, heads that say what a file is, no code in comments, and the formatters.

A rule is a function (path, text) -> complaints, so that it runs on a small bad sample as well as on
the tree. Paths are relative to the checkout.
"""

from __future__ import annotations

import ast
import itertools
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from support.source_tree import CPP, ROOT, tree

MAX_LINES = 500
MAX_COLUMNS = 100
MAX_HEAD_LINES = 5


def file_is_short(path: str, text: str) -> list[str]:
    lines = text.count("\n")
    return [f"{path} has {lines} lines"] if lines >= MAX_LINES else []


def lines_are_short(path: str, text: str) -> list[str]:
    return [
        f"{path}:{number} has {len(line)} columns"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > MAX_COLUMNS
    ]


def todo_is_a_sentence(path: str, text: str) -> list[str]:
    return [
        f"{path}: {line.strip()}"
        for line in text.splitlines()
        if re.search(r"\b(TODO|FIXME|XXX)\b(?!: (\S+ ){5,}\S+\.$)", line)
    ]


def no_commented_out_code(path: str, text: str) -> list[str]:
    """Statements behind a comment sign; prose does not end in `);` or begin with `if (`."""
    sign = "//" if path.endswith(CPP) else "#"
    statement = rf"^\s*{sign}\s*([\w.>:\[\]-]+(\(.*\)| [-+*/]?= .*);|(if|for|while) \(.*)$"
    if sign == "#":
        statement = r"^\s*# ?(import \w+|from \w+ import .*|[\w.]+ = \S+|[\w.]+\(.*\)|return .*\))$"
    return [f"{path}: {line.strip()}" for line in text.splitlines() if re.search(statement, line)]


def file_has_a_head(path: str, text: str) -> list[str]:
    first = text.lstrip().split("\n")[0]
    start = ("//", '"""', 'r"""', "#!")
    return [] if first.startswith(start) else [f"{path} does not say what it is in its first line"]


def head_of_csrc_is_short(path: str, text: str) -> list[str]:
    """The comment before the first code, without a licence line: what the file is.

    Measurements of variants stand in docs/dev/kernels; the layout of data stands with the code.
    """
    if not path.startswith("csrc/"):
        return []
    lines = text.splitlines()
    head = list(itertools.takewhile(lambda line: not line or line.startswith("//"), lines))
    head = [line for line in head if line and "SPDX-License-Identifier" not in line]
    bad = [f"{path} has a head of {len(head)} lines"] if len(head) > MAX_HEAD_LINES else []
    pages = re.findall(r"docs/[\w/.-]+\.md", " ".join(head))
    return bad + [f"{path} names {page}" for page in pages if not (ROOT / page).is_file()]


def head_of_python_has_few_measurements(path: str, text: str) -> list[str]:
    """A docstring says what a module is; a table of measurements is a page of docs/dev."""
    if not path.endswith(".py"):
        return []
    lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    measured = [line for line in lines if re.search(r"\d ?(us|ms|s|%|times|clocks|[GMT]B)\b", line)]
    return [f"{path}: {line}" for line in measured] if len(measured) > MAX_HEAD_LINES else []


RULES = (
    file_is_short,
    lines_are_short,
    todo_is_a_sentence,
    no_commented_out_code,
    file_has_a_head,
    head_of_csrc_is_short,
    head_of_python_has_few_measurements,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps(rule):
    files = {path: text for path, text in tree(*CPP, ".py").items() if text}
    if rule is todo_is_a_sentence or rule is no_commented_out_code:
        del files["tests/repo/test_style.py"]  # it holds the bad samples
    assert not [c for path, text in files.items() for c in rule(path, text)]


@pytest.mark.parametrize(
    ("rule", "path", "bad", "good"),
    [
        (file_is_short, "a.py", "\n" * 500, "\n" * 499),
        (lines_are_short, "a.py", "x" * 101, "x" * 100),
        (todo_is_a_sentence, "a.py", "# TODO faster", "# nothing to do"),
        (no_commented_out_code, "a.cpp", "  // run(x, y);", "  // runs x, then y; both wait."),
        (no_commented_out_code, "a.cpp", "  // x = y + 1;", "  // x = y + 1 holds here"),
        (no_commented_out_code, "a.py", "    # import os", "    # imports nothing"),
        (file_has_a_head, "a.cpp", "#pragma once", "// What it is.\n#pragma once"),
        (head_of_csrc_is_short, "csrc/a.h", "// x\n" * 6 + "int x;", "// x\n" * 5 + "int x;"),
        (head_of_csrc_is_short, "csrc/a.h", "// x\n\n" * 6 + "int x;", "int x;\n" + "// x\n" * 6),
        (head_of_csrc_is_short, "csrc/a.h", "// docs/none.md", "// docs/dev/glossary.md"),
        (
            head_of_python_has_few_measurements,
            "a.py",
            '"""Times.\n\n' + "It takes 3 us.\n" * 6 + '"""',
            '"""Times.\n\n' + "It takes 3 us.\n" * 5 + '"""',
        ),
    ],
)
def test_rule_can_fail(rule, path, bad, good):
    assert rule(path, bad)
    assert not rule(path, good)


def test_median_file_is_short():
    lengths = [text.count("\n") for text in tree(*CPP, ".py").values() if text]
    assert statistics.median(lengths) <= 200


# Formatters.


def tool(name: str) -> str:
    """A formatter of this interpreter's environment: another version formats differently."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not installed beside {sys.executable}")
    return found


def run_tool(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"make format mends most of it:\n{done.stdout}{done.stderr}"


def test_clang_format():
    run_tool(tool("clang-format"), "--dry-run", "--Werror", *tree(*CPP))


def test_ruff_check():
    run_tool(tool("ruff"), "check", "--no-cache")


def test_ruff_format():
    run_tool(tool("ruff"), "format", "--check", "--no-cache")
