"""A copy of tcgemm/ alone, as a wheel installs it, for programs that must not need the checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tcgemm


class Installed:
    """The package in a folder of its own; `run` starts a program beside it."""

    def __init__(self, folder: Path):
        self.folder = folder
        source = Path(tcgemm.__file__).parent
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        package = shutil.copytree(source, folder / "site" / "tcgemm", ignore=ignored)
        for library in source.glob("*.so"):
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
