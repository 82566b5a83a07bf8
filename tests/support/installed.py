"""A copy of tcgemm/ alone, as a wheel installs it, for programs that must not need the checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tcgemm

PACKAGE = Path(tcgemm.__file__).parent


def copy_package(folder: Path) -> Path:
    """Copies tcgemm/ into `folder`, without libraries, and returns the copy.

    __pycache__ stays behind: other processes write temporary files there at any time.
    """
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    return shutil.copytree(PACKAGE, folder / "tcgemm", ignore=ignored)


class Installed:
    """The package in a folder of its own; `run` starts a program beside it."""

    def __init__(self, folder: Path):
        self.folder = folder
        package = copy_package(folder / "site")
        for library in PACKAGE.glob("*.so"):
            (package / library.name).symlink_to(library)

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        """`python arguments` in the folder, with the copy and no checkout on the path.

        One thread: the threads of a busy machine wait for one another.
        """
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder / "site"), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
