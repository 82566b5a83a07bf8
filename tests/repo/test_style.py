"""Short files and lines, and the formatters."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.source_tree import CPP, ROOT, tree

MAX_LINES = 500
MAX_COLUMNS = 100  # clang-format does not break comments; ruff measures the lines of Python


def test_files_and_lines_are_short():
    files = tree(*CPP, ".py")
    assert len(files) > 300
    assert not [path for path, text in files.items() if text.count("\n") >= MAX_LINES]
    assert not [
        f"{path}:{number}"
        for path, text in tree(*CPP).items()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > MAX_COLUMNS
    ]


def run(name: str, *arguments: str) -> None:
    """A formatter of this interpreter's environment: another version formats differently."""
    tool = shutil.which(name, path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip(f"{name} is not installed beside {sys.executable}")
    process = subprocess.run([tool, *arguments], cwd=ROOT, capture_output=True, text=True)
    output = process.stdout + process.stderr
    assert process.returncode == 0, f"make format mends most of it:\n{output}"


def test_clang_format():
    run("clang-format", "--dry-run", "--Werror", *tree(*CPP))


@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff(command):
    run("ruff", *command, "--no-cache")
