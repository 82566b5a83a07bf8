"""The tiles of csrc/lab/000_hgemm.cu, and how 000_tile.cuh lays their rows in shared memory."""

from __future__ import annotations

from typing import NamedTuple


class HgemmTile(NamedTuple):
    """The template arguments of a tile, in their order.

    Attributes:
        m (int): rows of a block's tile.
        n (int): its columns.
        k (int): the k of a k-block.
        warp_m (int): rows of a warp's tile.
        warp_n (int): its columns.
        padded (int): 1 if 16 bytes of padding follow every 128.
        distance (int): products from one shared store to the next; 0: all stores come first.
        ldmatrix (int): 1 if fragments are read by ldmatrix, 0 if by LDS.32.
    """

    m: int
    n: int
    k: int
    warp_m: int
    warp_n: int
    padded: int = 1
    distance: int = 5
    ldmatrix: int = 0

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.m // self.warp_m * (self.n // self.warp_n) * 32

    def offset(self, row: int, column: int) -> int:
        """Bytes before an element."""
        return 2 * (row * self.k + (row * self.k // 64 * 8 if self.padded else 0) + column)


# By parameter 0 of the step.
TILES = (
    HgemmTile(128, 128, 32, 64, 64),
    HgemmTile(128, 128, 32, 128, 64),
    HgemmTile(256, 128, 32, 64, 64),
    HgemmTile(256, 128, 32, 128, 64),
    HgemmTile(256, 256, 32, 64, 64),
    HgemmTile(256, 256, 32, 128, 64),
    HgemmTile(128, 128, 64, 64, 64),
    HgemmTile(256, 256, 32, 128, 64, padded=0),
    HgemmTile(256, 256, 32, 128, 64, distance=2),
    HgemmTile(256, 256, 32, 128, 64, distance=0),
    HgemmTile(256, 256, 32, 128, 64, ldmatrix=1),
)
