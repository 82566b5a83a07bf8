"""Results of the instruments that the project has measured, one JSON file for each GPU.

A checkout has them in benchmarks/results, a wheel in tcgemm/results, where setup.py puts them.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from tcgemm._library import PACKAGE


def results(kind: str) -> dict[str, dict[str, Any]]:
    """{name of the GPU: the file's object} of the stored results of "probe" or "ladder"."""
    folders = (PACKAGE.parent / "benchmarks" / "results" / kind, PACKAGE / "results" / kind)
    files = {}
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            stored = _object(path, path.stat().st_mtime_ns)
            files.setdefault(stored["header"]["gpu"], stored)
    return files


@functools.cache
def _object(path: Path, _changed: int) -> dict[str, Any]:
    return json.loads(path.read_text())
