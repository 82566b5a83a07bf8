"""Short files and lines, the formatters, and tensors whose device is said."""

import ast
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


# The functions of torch whose results are on torch's default device without the argument device=.
CREATES = {
    *("arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "empty"),
    *("empty_permuted", "empty_quantized", "empty_strided", "eye", "full", "hamming_window"),
    *("hann_window", "kaiser_window", "linspace", "logspace", "nested_tensor", "normal", "ones"),
    *("rand", "randint", "randn", "randperm", "range", "scalar_tensor", "sparse_bsc_tensor"),
    *("sparse_bsr_tensor", "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor"),
    *("sparse_csr_tensor", "tensor", "tril_indices", "triu_indices", "zeros"),
}


def calls_without_device(text: str) -> list[int]:
    """The lines of a file of Python that create a tensor without `device=`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) in ("torch", "torch.nested")
        and node.func.attr in CREATES
        and all(keyword.arg != "device" for keyword in node.keywords)
    ]


def test_every_tensor_is_created_on_a_device_that_is_said():
    """torch.set_default_device and `with torch.device(...)` choose it for others. Where the user's
    choice is meant, `device=None` says so."""
    assert calls_without_device("torch.zeros(2)\ntorch.ones(2, device=None)\n") == [1]
    files = tree(".py")
    assert not [
        f"{path}:{line}"
        for path, text in files.items()
        if path.startswith("tcgemm/")
        for line in calls_without_device(text)
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
