"""Results of the instruments that the project has measured, one JSON file for each GPU.

They are package data, in tcgemm/lab/results.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def results(kind: str) -> dict[str, dict[str, Any]]:
    """{name of the GPU: the file's object} of the stored results of "probe" or "ladder"."""
    files = [_object(path) for path in sorted((FOLDER / kind).glob("*.json"))]
    return {file["header"]["gpu"]: file for file in files}


def to_resume(
    path: Path | str | None, resume: bool, gpu: str, load: Callable[[Path], dict[str, Any]]
) -> dict[str, Any] | None:
    """The records of the file that a run resumes, or None. ValueError: they are another GPU's."""
    if not resume or path is None or not Path(path).is_file():
        return None
    old = load(Path(path))
    if old["header"]["gpu"] != gpu:
        raise ValueError(
            f"{path} has records of {old['header']['gpu']}, and this GPU is {gpu}; "
            "name another file."
        )
    return old


@functools.cache
def _object(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())
