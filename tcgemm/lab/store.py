"""Results of the instruments that the project has measured, one JSON file for each GPU.

They are package data, in tcgemm/lab/results.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def results(kind: str) -> dict[str, dict[str, Any]]:
    """{name of the GPU: the file's object} of the stored results of "probe" or "ladder"."""
    files = [_object(path) for path in sorted((FOLDER / kind).glob("*.json"))]
    return {file["header"]["gpu"]: file for file in files}


@functools.cache
def _object(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())
