"""Bank conflicts of the steps, computed from the addresses of their warps.

An access is counted as csrc/lab has it: each warp, lane and instruction of the inner loop and of
the copies, by the formulas of the kernel. The widths come from the machine code: ptxas joins
four LDS of adjacent elements into one LDS.128, and the float64 loads of WMMA, which are generic
(LD.E.64), read shared memory as LDS.64 does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from tcgemm.lab.ladder import sources
from tcgemm.lab.ladder.hgemm_tile import TILES, HgemmTile
from tcgemm.lab.model import banks

LANES = range(32)
Warp = list[int]  # the address of each lane, in bytes
# {"LDS a": (bytes of a lane, what each warp reads)}
Accesses = dict[str, tuple[int, Iterable[Warp]]]


def of(step: str, parameters: Sequence[int] = ()) -> dict[str, int]:
    """The cycles of the slowest phase of each access to shared memory: 1 without conflicts.

    {} is of a step without shared memory. The padding of 001_5 in elements explains its order of
    speed: the four columns of a fragment lie 0, 4, 8 or 12 banks after one another, and the eight
    banks of four rows meet four, two, one or two times. Of 002_6 these are the pieces at an edge;
    a piece that lies within its matrix goes past shared memory.

    Example:
        >>> from tcgemm.lab.ladder import conflicts
        >>> [conflicts.of("001_5_shared_a", (64, pad))["LDS a"] for pad in (0, 2, 4, 6)]
        [4, 2, 1, 2]

    Arguments:
        step: "004_2_0".
        parameters: of the step's variant.

    Raises:
        ValueError: There is no such step or variant.
    """
    if step not in STEPS:
        sources.check(step)
        return {}
    function, ranges = STEPS[step]
    arguments = tuple(parameters[: len(ranges)])
    if len(arguments) < len(ranges) or any(
        value not in values for value, values in zip(arguments, ranges, strict=True)
    ):
        raise ValueError(f"{step} has no variant with the parameters {tuple(parameters)}.")
    return {
        name: max(banks.ways(warp, width) for warp in warps)
        for name, (width, warps) in function(*arguments).items()
    }


def _warps(address: Callable[..., int], threads: int, *steps: Iterable[int]) -> list[Warp]:
    """The addresses of an access by the thread of a block and the steps of the loops around it."""
    return [
        [address(first + lane, *at) for lane in LANES]
        for at in itertools.product(*steps)
        for first in range(0, threads, 32)
    ]


def _halves(address: Callable[[int], int], threads: int) -> list[Warp]:
    """The same of 2 bytes a lane: two halves of one word do not collide."""
    return _warps(lambda thread: address(thread) // 4 * 4, threads)


# 001: float64 with WMMA. Lane 4 g + t has element (g, t) of a and (t, g) of b, column-major.


def _fragment_a(pitch: int, row: int, column: int) -> Warp:
    return [8 * ((column + lane % 4) * pitch + row + lane // 4) for lane in LANES]


def _fragment_b(pitch: int, row: int, column: int) -> Warp:
    return [8 * ((column + lane // 4) * pitch + row + lane % 4) for lane in LANES]


def _shared_a(tile: int, padding: int) -> Accesses:
    pitch = tile + padding
    stores = _warps(lambda i: 8 * (i % tile + i // tile * pitch), 4 * tile)
    loads = [_fragment_a(pitch, row, 0) for row in range(0, tile, 8)]
    return {"STS a": (8, stores), "LDS a": (8, loads)}


def _shared_ab(tile: int, depth: int) -> Accesses:
    pitch_a, pitch_b = tile + 4, depth + 4
    copies_a = _warps(lambda i: 8 * (i % tile + i // tile * pitch_a), tile * depth)
    copies_b = [
        [8 * (first + lane + column * pitch_b) for lane in LANES]
        for column in range(tile)
        for first in range(0, depth, 32)
    ]
    deep = range(0, depth, 4)
    loads_a = [_fragment_a(pitch_a, row, k) for row in range(0, tile, 8) for k in deep]
    loads_b = [_fragment_b(pitch_b, k, column) for column in range(0, tile, 8) for k in deep]
    return {
        "STS a": (8, copies_a),
        "STS b": (8, copies_b),
        "LDS a": (8, loads_a),
        "LDS b": (8, loads_b),
    }


# 002: float32 tiles [row][element] without padding, thread = y * width + x.


def _block() -> Accesses:
    """A thread has row x of a and column y of b."""
    return {
        "STS": (4, _warps(lambda i: 4 * i, 256)),
        "LDS.128 a": (16, _warps(lambda i, k: 64 * (i % 16) + 4 * k, 256, range(0, 16, 4))),
        "LDS b": (4, _warps(lambda i, k: 64 * k + 4 * (i // 16), 256, range(16))),
    }


def _thread() -> Accesses:
    """Eight rows from 8 x on, and column y; blocks of 4x32 threads."""
    rows = _warps(lambda i, r, k: 128 * (i % 4 * 8 + r) + 4 * k, 128, range(8), range(0, 32, 4))
    return {
        "STS": (4, _warps(lambda i: 4 * i, 1024)),
        "LDS.128 a": (16, rows),
        "LDS b": (4, _warps(lambda i, k: 128 * k + 4 * (i // 4), 128, range(32))),
    }


def _thread_2d() -> Accesses:
    """Eight rows from 8 x on, and eight columns from 8 y on; blocks of 8x8 threads."""
    rows = _warps(lambda i, r, k: 256 * (i % 8 * 8 + r) + 4 * k, 64, range(8), range(64))
    columns = _warps(lambda i, k, s: 256 * k + 4 * (i // 8 * 8 + s), 64, range(64), (0, 4))
    return {
        "STS": (4, _warps(lambda i: 4 * i, 4096)),
        "LDS a": (4, rows),
        "LDS.128 b": (16, columns),
    }


def _edges() -> Accesses:
    """Pieces of 16x16 float16; WMMA reads them by ldmatrix, eight rows of a half a phase."""
    rows = [[32 * (lane % 16) + lane // 16 * 16 for lane in LANES]]
    stores = _halves(lambda i: 2 * i, 256)
    return {"STS.U16": (4, stores), "ldmatrix a": (16, rows), "ldmatrix b": (16, rows)}


# 003 and 004: rows of 16-bit elements in chunks of 16 bytes, and ldmatrix.

Offset = Callable[[int, int], int]  # (row, chunk) -> bytes


def _plain128(row: int, chunk: int) -> int:
    return row * 128 + chunk * 16


def _permuted128(row: int, chunk: int) -> int:
    return row * 128 + (chunk ^ row % 8) * 16


def _permuted64(row: int, chunk: int) -> int:
    return row * 64 + (chunk ^ row // 2 % 4) * 16


def _chunks(offset: Offset, copy: str, block: int, chunks: int) -> Accesses:
    """Tiles of `block` rows of chunks. The warps of a block share all groups of 16 rows."""
    starts = [(first, step) for first in range(0, block, 16) for step in range(0, chunks, 2)]
    loads_a = [
        [offset(first + lane % 16, step + lane // 16) for lane in LANES] for first, step in starts
    ]
    loads_b = [
        [offset(first + lane % 8 + lane // 16 * 8, step + lane // 8 % 2) for lane in LANES]
        for first, step in starts
    ]
    stores = _warps(lambda i: offset(i // chunks, i % chunks), block * chunks)
    return {copy: (16, stores), "ldmatrix a": (16, loads_a), "ldmatrix b": (16, loads_b)}


def _plain_mma(block: int) -> Accesses:
    """004_1: rows of 16 elements; lane 4 g + t reads elements 2 t and 2 t + 1 of row g."""

    def loads(rows: range) -> list[Warp]:
        return [
            [32 * (first + lane // 4) + 4 * (lane % 4) + part for lane in LANES]
            for first in rows
            for part in (0, 16)
        ]

    stores = _halves(lambda i: 2 * i, 16 * block)
    rows = range(0, block, 8)
    return {"STS.U16": (4, stores), "LDS a": (4, loads(rows)), "LDS b": (4, loads(rows))}


def _hgemm(number: int) -> Accesses:
    tile = TILES[number]
    chunks = tile.k // 8
    rows = tile.m + tile.n  # the rows of a, then the rows of b
    stores = _warps(lambda i: tile.offset(i // chunks, i % chunks * 8), rows * chunks)
    name = "ldmatrix" if tile.ldmatrix else "LDS"
    return {
        "STS.128": (16, stores),
        f"{name} a": _hgemm_loads(tile, range(tile.m)),
        f"{name} b": _hgemm_loads(tile, range(tile.m, rows)),
    }


def _hgemm_loads(tile: HgemmTile, rows: range) -> tuple[int, list[Warp]]:
    """8x8 elements by LDS.32, or four such blocks below one another by ldmatrix."""
    steps = range(0, tile.k, 8)
    if tile.ldmatrix:
        return 16, [
            [tile.offset(first + lane, k) for lane in LANES] for first in rows[::32] for k in steps
        ]
    return 4, [
        [tile.offset(first + lane // 4, k + lane % 4 * 2) for lane in LANES]
        for first in rows[::8]
        for k in steps
    ]


# Of each step with shared memory: its accesses, and the values of the parameters they depend on.
STEPS: dict[str, tuple[Callable[..., Accesses], tuple[Sequence[int], ...]]] = {
    "000_hgemm": (_hgemm, (range(len(TILES)),)),
    "001_5_shared_a": (_shared_a, ((32, 64, 96, 128), (0, 2, 4, 6))),
    "001_6_shared_ab": (_shared_ab, ((32, 64, 96, 128), (32, 64, 96, 128))),
    "002_1_block": (_block, ()),
    "002_2_thread": (_thread, ()),
    "002_3_thread2d": (_thread_2d, ()),
    "002_6_edges": (_edges, ()),
    "003_baseline": (lambda: _chunks(_plain128, "STS.128", 64, 8), ()),
    "003_pipeline": (lambda: _chunks(_plain128, "cp.async", 64, 8), ()),
    "003_permuted": (lambda: _chunks(_permuted128, "STS.128", 64, 8), ()),
    "003_both": (lambda: _chunks(_permuted128, "cp.async", 64, 8), ()),
    "004_1_0": (lambda: _plain_mma(32), ()),
    "004_1_1": (lambda: _plain_mma(64), ()),
    "004_2_0": (lambda: _chunks(_permuted64, "STS.128", 64, 4), ()),
    "004_2_1": (lambda: _chunks(_permuted64, "STS.128", 64, 4), ()),
    "004_3_0": (lambda stages: _chunks(_permuted64, "cp.async", 64, 4), ((2, 3, 4, 5),)),
    "004_3_1": (lambda *_: _chunks(_permuted64, "cp.async", 128, 4), ((3, 4), (32, 64))),
    "004_3_2_outside": (lambda bits: _chunks(_permuted64, "cp.async", 128, 4), ((16, 32),)),
}
