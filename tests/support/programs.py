"""Programs of Python that run in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import tcgemm


def run(program, *arguments, **options):
    """The process, whose output is text, once it has ended."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def last_error(program, **variables):
    """(the exit status, the last line of stderr) of a program that finds this tcgemm."""
    path = str(Path(tcgemm.__file__).resolve().parents[1])
    process = run(program, env={**os.environ, "PYTHONPATH": path, **variables})
    return process.returncode, (process.stderr.strip().splitlines() or [""])[-1]
