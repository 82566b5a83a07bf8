"""The roofline: how many operations a byte a tile needs, and which memory can feed it.

A block of m x n reads (m + n) elements of k for each m n products: m n / (m + n) operations a byte
of float16. From shared memory each of its warps reads so for its own tile. Where a roof's rate
times this intensity is below the peak, the roof is the bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcgemm.lab.model.gpus import Costs

BLOCKS = ((256, 256), (256, 128), (128, 128), (128, 64), (64, 64))
# The tile of a warp in each block: what it reads from shared memory.
WARPS = dict(zip(BLOCKS, ((128, 64), (64, 64), (64, 64), (64, 32), (32, 32)), strict=True))
ELEMENT = 2  # bytes
SHARED = "shared memory"


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
    result = []
    for (m, n), (wm, wn) in WARPS.items():
        row: dict[str, Any] = {"block": f"{m}x{n}", "operations a byte": intensity(m, n)}
        row |= {"warp": f"{wm}x{wn}", "of shared memory": intensity(wm, wn)}
        for name, rate in roofs(costs).items():
            per_byte = row["of shared memory" if name == SHARED else "operations a byte"]
            row[name] = None if rate is None else min(per_byte * rate, costs.tensor)
        limits = [row[name] for name in roofs(costs) if row[name] is not None]
        row["of the peak"] = min(limits) / costs.tensor
        result.append(row)
    return result


def roofs(costs: Costs) -> dict[str, float | None]:
    """Bytes per second of each memory, or None where the GPU has no figure."""
    return {"memory": costs.memory, "L2": costs.l2, SHARED: costs.shared_rate}
