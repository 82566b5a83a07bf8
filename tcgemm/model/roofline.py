"""The roofline: how many operations a byte a tile needs, and which memory can feed it.

A block of m x n reads (m + n) elements of k for each m n products: m n / (m + n) operations a byte
of float16. Where a roof's rate times this intensity is below the peak, the roof is the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcgemm.model.gpus import Costs

BLOCKS = ((256, 256), (256, 128), (128, 128), (128, 64), (64, 64))
ELEMENT = 2  # bytes


def intensity(m: int, n: int, element: int = ELEMENT) -> float:
    """Operations a byte that a block of m x n reads: 2 m n / ((m + n) element)."""
    if m <= 0 or n <= 0:
        raise ValueError(f"A block of {m}x{n} has no elements.")
    return 2 * m * n / ((m + n) * element)


def ridge(rate: float, peak: float) -> float:
    """The intensity from which a memory of this rate (bytes per second) feeds the peak."""
    return peak / rate


def rows(costs: Costs) -> list[dict[str, Any]]:
    """For each block, what each roof allows, in operations per second."""
    found = []
    for m, n in BLOCKS:
        of_block = intensity(m, n)
        row: dict[str, Any] = {"block": f"{m}x{n}", "operations a byte": of_block}
        for name, rate in (("memory", costs.memory), ("L2", costs.l2)):
            row[name] = None if rate is None else min(of_block * rate, costs.tensor)
        limits = [value for value in (row["memory"], row["L2"]) if value is not None]
        row["of the peak"] = min(limits) / costs.tensor
        found.append(row)
    return found
