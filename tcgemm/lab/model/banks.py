"""Bank conflicts of shared memory, from the addresses of a warp's lanes.

Shared memory has 32 banks of 4 bytes. An access of 4 bytes a lane is one phase of 32 lanes, of 8
bytes two phases of 16, of 16 bytes four phases of 8; an ldmatrix of 8 rows of 16 bytes is one
phase. A phase takes as many cycles as the bank with the most different words has: its ways.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

Layout = Callable[[int, int], int]  # (row, byte within the row) -> address in bytes

BANKS, WORD = 32, 4
LANES = {4: 32, 8: 16, 16: 8}  # of a phase, by the bytes that a lane accesses


def ways(addresses: Sequence[int], width: int) -> int:
    """The cycles of the slowest phase of an access of `width` bytes at these addresses.

    ValueError: the width is not 4, 8 or 16, or an address is no multiple of it.
    """
    return max(phases(addresses, width), default=0)


def cycles(addresses: Sequence[int], width: int) -> int:
    """The cycles of all phases of an access: 1 of 4 bytes a lane without conflicts, 4 of 16 bytes.

    ValueError: as of `ways`.
    """
    return sum(phases(addresses, width))


def phases(addresses: Sequence[int], width: int) -> list[int]:
    """The ways of each phase of an access of `width` bytes; ValueError: as of `ways`."""
    if width not in LANES:
        raise ValueError(f"width is {width}; a lane accesses 4, 8 or 16 bytes.")
    misaligned = [address for address in addresses if address % width or address < 0]
    if misaligned:
        raise ValueError(f"The address {misaligned[0]} is no multiple of {width}.")
    lanes, counts = LANES[width], []
    for first in range(0, len(addresses), lanes):
        words = {
            address // WORD + part
            for address in addresses[first : first + lanes]
            for part in range(width // WORD)
        }
        banks = [word % BANKS for word in words]
        counts.append(max(banks.count(bank) for bank in set(banks)))
    return counts


def row_major(pitch: int) -> Layout:
    """Rows of `pitch` bytes, one after the other; padding makes the pitch longer than a row."""
    return lambda row, byte: row * pitch + byte


def padded_pairs(length: int, padding: int) -> Layout:
    """Rows of `length` bytes with `padding` bytes after every second one (Yan, Wang and Chu)."""
    return lambda row, byte: row * length + row // 2 * padding + byte


def swizzled128(row: int, byte: int) -> int:
    """Rows of 128 bytes whose 16-byte chunks are swapped by row % 8: csrc/tile/swizzle.cuh."""
    return row * 128 + ((byte // 16 ^ row & 7) << 4) + byte % 16


def swizzled64(row: int, byte: int) -> int:
    """Rows of 64 bytes whose 16-byte chunks are swapped by row / 2 % 4."""
    return row * 64 + ((byte // 16 ^ row >> 1 & 3) << 4) + byte % 16


def ldmatrix(layout: Layout, row: int = 0, byte: int = 0) -> int:
    """The ways of an ldmatrix of eight rows from `row` on, 16 bytes from `byte` on."""
    return ways(ldmatrix_addresses(layout, row, byte), 16)


def ldmatrix_addresses(layout: Layout, row: int = 0, byte: int = 0) -> list[int]:
    """The addresses of that ldmatrix, a lane each."""
    return [layout(row + index, byte) for index in range(8)]


def fragment(layout: Layout, row: int = 0, byte: int = 0) -> int:
    """The ways of loading an 8x8 fragment of float16 by LDS.32: lane 4 g + t has row g, word t."""
    return ways(fragment_addresses(layout, row, byte), 4)


def fragment_addresses(layout: Layout, row: int = 0, byte: int = 0, element: int = 4) -> list[int]:
    """The addresses of that load, or of one with other bytes a lane."""
    return [layout(row + lane // 4, byte + lane % 4 * element) for lane in range(32)]


def transposed_addresses(layout: Layout, element: int) -> list[int]:
    """The same with rows of k: lane 4 g + t has row t, and element g of so many bytes."""
    return [layout(lane % 4, lane // 4 * element) for lane in range(32)]


def store_rows(layout: Layout, length: int, row: int = 0) -> int:
    """The ways of storing rows of `length` bytes by STS.128, lane after lane."""
    return ways(store_addresses(layout, length, row), 16)


def store_addresses(layout: Layout, length: int, row: int = 0) -> list[int]:
    """The addresses of that store."""
    chunks = length // 16
    return [layout(row + lane // chunks, lane % chunks * 16) for lane in range(32)]


# Layouts with the bytes of their rows: the published HGEMM's, and the swizzles of tcgemm.
LAYOUTS: dict[str, tuple[Layout, int]] = {
    "rows of 32 bytes": (row_major(32), 32),
    "rows of 64 bytes": (row_major(64), 64),
    "rows of 64 bytes, 16 more after every second": (padded_pairs(64, 16), 64),
    "rows of 64 bytes, swizzled": (swizzled64, 64),
    "rows of 128 bytes": (row_major(128), 128),
    "rows of 128 bytes, 16 more after each": (row_major(144), 128),
    "rows of 128 bytes, swizzled": (swizzled128, 128),
}


class Pattern(NamedTuple):
    """What the lanes of a warp access at once.

    Attributes:
        opcode (str): "LDS.64".
        width (int): bytes of a lane.
        addresses (list[int]): of each lane.
    """

    opcode: str
    width: int
    addresses: list[int]

    @property
    def ways(self) -> int:
        """The cycles of the slowest phase."""
        return ways(self.addresses, self.width)


def _loads(pitch: int, element: int, k_major: bool) -> Pattern:
    """A fragment of 8 of m by 4 of k; a row has k, or m."""
    of = fragment_addresses if k_major else transposed_addresses
    return Pattern(f"LDS.{8 * element}", element, of(row_major(pitch), element=element))


def _column_pairs(column: int) -> list[int]:
    """Pairs of adjacent rows of a column, 2 bytes an element: lane 4 g + t has rows 2 g."""
    return [swizzled128(column + lane % 4 * 2, lane // 4 * 4) for lane in range(32)]


# Accesses of other widths and orders: of the float64 kernels for Hopper, whose rows have 128 bytes
# of k or the tile, and padding (csrc/tile/fp64_producer.cuh); of the results that wait in
# shared memory (csrc/tile/tma_store_columns.cuh, csrc/tile/store.cuh); and of ladder 001.
PATTERNS: dict[str, Pattern] = {
    "float64, rows of 16 of k and 4 more": _loads(8 * (16 + 4), 8, k_major=True),
    "float64, rows of 128 of m and 4 more": _loads(8 * (128 + 4), 8, k_major=False),
    "float32, rows of 32 of k and 4 more": _loads(4 * (32 + 4), 4, k_major=True),
    "float32, rows of 128 of m and 8 more": _loads(4 * (128 + 8), 4, k_major=False),
    "float64, rows of 64 of m": _loads(8 * 64, 8, k_major=False),
    "float64, rows of 64 of m and 2 more": _loads(8 * (64 + 2), 8, k_major=False),
    "float64, rows of 64 of m and 4 more": _loads(8 * (64 + 4), 8, k_major=False),
    "columns of 16-bit results, swizzled": Pattern("STS.32", 4, _column_pairs(0)),
    "rows of float32 results, swizzled": Pattern(
        "STS.64", 8, fragment_addresses(swizzled128, element=8)
    ),
}
