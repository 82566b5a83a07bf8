"""The sources of the kernels, one idea a file, and what a step changes.

A checkout has them in csrc/lab, a wheel in tcgemm/lab/ladder/csrc.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from tcgemm import _shipped

SUFFIX = ".cu"
CONTEXT = 2  # lines around a change


def folder() -> Path:
    """Where the sources are; RuntimeError if this installation has none."""
    return _shipped.folder("csrc/lab", "lab/ladder/csrc", f"*{SUFFIX}", "sources of the ladders")


def names() -> list[str]:
    """The names of the steps that have a source: "004_1_0"."""
    return sorted(path.stem for path in folder().glob(f"*{SUFFIX}"))


def source(step: str) -> str:
    """The CUDA source of a step; what several steps share is in headers beside it.

    ValueError: there is no such step.

    Example:
        >>> from tcgemm.lab.ladder import sources
        >>> "mma_sync" in sources.source("004_1_0")
        True
    """
    check(step)
    return (folder() / f"{step}{SUFFIX}").read_text()


def check(step: str) -> None:
    """ValueError if there is no such step."""
    steps = names()
    if step not in steps:
        raise ValueError(f"step is {step!r}; expected one of {', '.join(steps)}.")


def difference(first: str, second: str) -> str:
    """The unified diff from one step's source to another's; empty if they are the same.

    ValueError: there is no such step.

    Example:
        >>> from tcgemm.lab.ladder import sources
        >>> print(sources.difference("003_baseline", "003_permuted").splitlines()[1])
        +++ 003_permuted.cu
    """
    before, after = (source(step).splitlines(keepends=True) for step in (first, second))
    headings = (f"{first}{SUFFIX}", f"{second}{SUFFIX}")
    return "".join(difflib.unified_diff(before, after, *headings, n=CONTEXT))
