"""Bank conflicts of shared memory, from the addresses of a warp's lanes.

Shared memory has 32 banks of 4 bytes. An access of 4 bytes a lane is one phase of 32 lanes, of 8
bytes two phases of 16, of 16 bytes four phases of 8; an ldmatrix of 8 rows of 16 bytes is one
phase. A phase takes as many cycles as the bank with the most different words has: its ways.
"""

from collections.abc import Callable, Sequence

Layout = Callable[[int, int], int]  # (row, byte within the row) -> address in bytes

BANKS, WORD = 32, 4
LANES = {4: 32, 8: 16, 16: 8}  # of a phase, by the bytes that a lane accesses


def ways(addresses: Sequence[int], width: int) -> int:
    """The cycles of the slowest phase of an access of `width` bytes at these addresses.

    ValueError: the width is not 4, 8 or 16, or an address is no multiple of it.
    """
    if width not in LANES:
        raise ValueError(f"width is {width}; a lane accesses 4, 8 or 16 bytes.")
    wrong = [address for address in addresses if address % width or address < 0]
    if wrong:
        raise ValueError(f"The address {wrong[0]} is no multiple of {width}.")
    lanes, worst = LANES[width], 0
    for first in range(0, len(addresses), lanes):
        words = {
            address // WORD + part
            for address in addresses[first : first + lanes]
            for part in range(width // WORD)
        }
        banks = [word % BANKS for word in words]
        worst = max(worst, *(banks.count(bank) for bank in set(banks)))
    return worst


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
    return ways([layout(row + index, byte) for index in range(8)], 16)


def fragment(layout: Layout, row: int = 0, byte: int = 0) -> int:
    """The ways of loading an 8x8 fragment of float16 by LDS.32: lane 4 g + t has row g, word t."""
    return ways([layout(row + lane // 4, byte + lane % 4 * 4) for lane in range(32)], 4)


def store_rows(layout: Layout, length: int, row: int = 0) -> int:
    """The ways of storing rows of `length` bytes by STS.128, lane after lane."""
    chunks = length // 16
    return ways([layout(row + lane // chunks, lane % chunks * 16) for lane in range(32)], 16)
