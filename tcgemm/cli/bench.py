"""python -m tcgemm bench: runs `python -m benchmarks run` of the checkout around tcgemm."""

import os
import subprocess
import sys
from pathlib import Path


def run(arguments: list[str]) -> int:
    """Runs `python -m benchmarks run`. The wheel has no benchmarks: results belong to a commit."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "benchmarks" / "__main__.py").is_file():
        print(f"The benchmarks are part of the source checkout; {checkout} has no benchmarks/.")
        return 1
    folders = [str(checkout), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    command = [sys.executable, "-m", "benchmarks", "run", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode
