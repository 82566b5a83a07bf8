"""The blocking model of Yan, Wang and Chu: does a tile wait for the tensor cores or for memory?

An SM multiplies a block of m x n by steps of k. In each step its tensor cores need

    tensor = 2 m n k / (2 * 16 * 8 * 8 * 4) * CPI(HMMA.1688)

cycles, and its one pipe for memory, which global loads, shared stores and shared loads use,

    fill = (m + n) k * 2 bytes / (32 lanes * 16 bytes) * (CPI(LDG.128) + CPI(STS.128))
    read = m n / (wm wn) * (wm / 8 + wn / 8) * k / wk * CPI(LDS.32)

where a warp multiplies wm x wn x wk. The larger of both bounds the tile (their equations 3 to 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tcgemm.lab.model.gpus import Costs

ELEMENT = 2  # bytes of float16
ACCUMULATORS = 2  # bytes of a float16 accumulator
VECTOR = 32 * 16  # bytes of an LDG.128 or an STS.128
INSTRUCTION = (16, 8, 8)  # HMMA.1688
PARTS = 4  # of an SM, each with tensor cores
REGISTERS = 65536 * 4  # bytes in an SM
PADDING = 8  # elements after every second row of k elements, against bank conflicts


class Tile(NamedTuple):
    """A block m x n x k of warps wm x wn x wk."""

    m: int
    n: int
    k: int
    wm: int
    wn: int
    wk: int

    @property
    def warps(self) -> int:
        """Warps of the block."""
        return self.m * self.n // (self.wm * self.wn)


# Table VI: blocks of 32 elements of k, warps of 8; and the tile of cuBLAS 10.1 in table VII.
TILES = tuple(
    Tile(m, n, 32, wm, 64, 8) for m, n in ((128, 128), (256, 128), (256, 256)) for wm in (64, 128)
)
CUBLAS = Tile(128, 128, 64, 64, 64, 8)


class Bound(NamedTuple):
    """The cycles of a step of k, and what a block takes of its SM."""

    tile: Tile
    tensor: float
    memory: float
    shared_bytes: int
    register_bytes: int
    blocks: int  # that an SM holds; 0: the block does not fit

    @property
    def bound_by(self) -> str:
        """ "tensor cores" or "memory"."""
        return "tensor cores" if self.tensor >= self.memory else "memory"


def check(tile: Tile) -> None:
    """ValueError for a tile whose parts do not divide it."""
    m, n, k, wm, wn, wk = tile
    if min(tile) <= 0 or m % wm or n % wn or k % wk or wm % 16 or wn % 8 or wk % 8:
        raise ValueError(
            f"A tile of {m}x{n}x{k} and warps of {wm}x{wn}x{wk} does not divide: the warp has to "
            "divide the block, and 16x8x8 the warp."
        )


def bound(tile: Tile, costs: Costs, padding: int = PADDING) -> Bound:
    """The model for one tile on a GPU; `padding`: elements after every second row of a tile."""
    check(tile)
    cycles = (costs.mma, costs.load_global, costs.store_shared, costs.load_shared)
    if None in cycles:
        raise ValueError(
            f"{costs.name} has no measured cycles of instructions; pass a JSON file that has them."
        )
    mma, load_global, store_shared, load_shared = (float(cost or 0) for cost in cycles)
    m, n, k, wm, wn, wk = tile
    per_step = INSTRUCTION[0] * INSTRUCTION[1] * INSTRUCTION[2] * PARTS
    tensor = m * n * k / per_step * mma
    fill = (m + n) * k * ELEMENT / VECTOR * (load_global + store_shared)
    reads = tile.warps * (wm // 8 + wn // 8) * (k // wk) * load_shared
    shared = (m + n) * (2 * k + padding) // 2 * ELEMENT
    # A warp has its accumulators, and the fragments of two steps of wk.
    registers = tile.warps * (wm * wn * ACCUMULATORS + 2 * (wm + wn) * wk * ELEMENT)
    blocks = min(costs.shared // shared, REGISTERS // registers)
    return Bound(tile, tensor, fill + reads, shared, registers, blocks)


def prefetch_cycles(tile: Tile, costs: Costs) -> float:
    """Cycles of the products between the global load of the next tile and its first use.

    A warp loads at the start of a step of k and stores after one and a half steps of wk: 64 + 32
    HMMA of a warp of 128 x 64 x 8. With 8 cycles an HMMA these are the 768 cycles of Yan, Wang and
    Chu, which hide the latency of the load.
    """
    check(tile)
    count = tile.wm * tile.wn * tile.wk / (INSTRUCTION[0] * INSTRUCTION[1] * INSTRUCTION[2])
    return 1.5 * count * float(costs.mma or 0)


def store_distance(costs: Costs) -> int:
    """HMMA between two STS.128 of a warp, so that the four parts never wait for the one pipe.

    n * CPI(HMMA) >= 4 * CPI(STS.128) (their equation 6).
    """
    if costs.mma is None or costs.store_shared is None:
        raise ValueError(
            f"{costs.name} has no measured cycles of instructions; pass a JSON file that has them."
        )
    return -int(-PARTS * costs.store_shared // costs.mma)
