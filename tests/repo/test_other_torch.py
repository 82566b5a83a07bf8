"""One library serves every torch: each of the oldest and the newest runs what the other one built.

TCGEMM_OTHER_PYTHON names an interpreter with another torch and the packages of the extra `test`.
Without it the newest torch is installed into build/other-torch, which takes gigabytes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

from tcgemm import _library

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = (
    *("tests/ops/test_dense.py", "tests/ops/test_epilogue.py", "tests/operands/integers"),
    *("tests/operands/sparse/test_mm.py", "tests/operands/packed/test_layer.py"),
)
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]


def versions() -> list[str]:
    """The torch that the nightly tests of .github take: the oldest and the newest."""
    text = (ROOT / ".github/workflows/cpu.yml").read_text()
    row = re.search(r"torch: \[(.*)\]", text)
    assert row
    return re.findall(r"\d+\.\d+\.\d+", row[1])


def own_version() -> str:
    return torch.__version__.split("+")[0]


def run(*command: object, **variables: str) -> str:
    words, environ = [str(word) for word in command], os.environ | variables
    process = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environ)
    assert process.returncode == 0, (process.stdout + process.stderr)[-5000:]
    return process.stdout


@pytest.fixture(scope="module")
def other() -> str:
    """An interpreter with another torch."""
    python = os.environ.get("TCGEMM_OTHER_PYTHON")
    if python is None:
        oldest, newest = versions()
        version = oldest if own_version() == newest else newest
        folder = ROOT / "build" / "other-torch" / version
        python = str(folder / "bin/python")
        if not folder.is_dir():
            venv.create(folder, with_pip=True)
        packages = ("setuptools", "ninja", "numpy", "safetensors", "hypothesis", "pytest")
        tools = (*packages, "pytest-timeout", "pytest-xdist")
        run(python, "-m", "pip", "install", "-q", f"torch=={version}", *tools)
    version = run(python, "-c", "import torch; print(torch.__version__)")
    assert version.split("+")[0] != own_version()
    return python


def sample(python: str, library: Path) -> str:
    options = ("-q", "-n", 0, "-p", "no:cacheprovider")
    return run(python, "-m", "pytest", *options, *SAMPLE, TCGEMM_LIBRARY=str(library))


def test_another_torch_runs_this_library(other):
    assert re.search(r"^[1-9]\d{2,} passed", sample(other, _library.path()), re.MULTILINE)


def test_this_torch_runs_the_library_of_another(other, tmp_path):
    run(other, "setup.py", "-q", "build_ext", "--build-lib", tmp_path, TCGEMM_CUDA="0")
    (library,) = tmp_path.rglob("libtcgemm.so")
    assert re.search(r"^[1-9]\d{2,} passed", sample(sys.executable, library), re.MULTILINE)
