"""python -m tcgemm bench: the benchmarks of the checkout that tcgemm is imported from."""

import runpy
import sys
from pathlib import Path


def run(arguments: list[str]) -> int:
    """The wheel has no benchmarks: their results belong to a commit of the sources."""
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "dense.py"
    if not script.is_file():
        print(f"The benchmarks are part of the source checkout; {script} is not there.")
        return 1
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")
    return 0
