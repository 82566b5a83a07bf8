"""Rows of medians with their ranges, and the files that keep them.

{"header": {gpu, driver, torch, commit, ...},
 "rows": [{..., "us": [median, lowest, highest], "ratio": [...]}]}    one row a line
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

Results = dict[str, Any]


def three(values: list[float], digits: int) -> list[float]:
    """The median, the lowest and the highest."""
    figures = (statistics.median(values), min(values), max(values))
    return [round(value, digits) for value in figures]


def text(row: dict[str, Any], baseline: str) -> str:
    """The time of a row and its ratio, with their ranges."""
    us, ratio = row["us"], row["ratio"]
    return (
        f"{us[0]:10.1f} us ({us[1]:.1f}-{us[2]:.1f}), "
        f"{ratio[0]:.2f} x {baseline}'s speed ({ratio[1]:.2f}-{ratio[2]:.2f}), "
        f"output differs by {row['difference']:g}"
    )


def show_stored(folder: Path, lines: Callable[[Results], list[str]]) -> None:
    """Prints what an earlier run has stored."""
    paths = sorted(folder.glob("*.json"))
    for path in paths:
        print(f"\n{path.name}")
        print("\n".join(lines(json.loads(path.read_text()))))
    if not paths:
        print(f"{folder} has no stored results.")
