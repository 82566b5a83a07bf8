"""The slices of tiles that stream-K makes: csrc/kernels/sm90/grid_walk.cuh."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tcgemm.ops.explanation import Explanation


class Block(NamedTuple):
    """The rows and columns of a result that have the same slices of k."""

    batch: int
    rows: slice
    columns: slice
    slices: list[tuple[int, int]]  # the first k-block of each, and the one behind its last


class StreamK(NamedTuple):
    """How a grid has equal parts of the k-blocks of its first tiles. The others are whole: as many
    for each cluster."""

    clusters: int  # of the grid
    rows: int  # of the tiles of a cluster
    columns: int
    raster_group: int

    @classmethod
    def of(cls, plan: Explanation) -> StreamK | None:
        """None if the plan has another division of k."""
        if not plan.stream_k:
            return None
        assert plan.tile is not None and plan.grid is not None and plan.raster_group is not None
        m, _, n = str(plan.cluster).partition("x")
        shape = int(m), int(n or 1)
        return cls(
            plan.grid // (shape[0] * shape[1]),
            plan.tile[0] * shape[0],
            plan.tile[1] * shape[1],
            plan.raster_group,
        )

    def blocks(self, batch: int, m: int, n: int, k_blocks: int) -> Iterator[Block]:
        """The results of each cluster's tiles, in the order of the grid. m: rows for the kernel."""
        tiles = -(-m // self.rows), -(-n // self.columns)
        count = batch * tiles[0] * tiles[1]
        least, longer = divmod(count % self.clusters * k_blocks, self.clusters)
        starts = [part * least + min(part, longer) for part in range(self.clusters)]
        for index in range(count):
            matrix, tile = divmod(index, tiles[0] * tiles[1])
            row, column = self._place(tile, *tiles)
            first = index * k_blocks
            inside = (start - first for start in starts if first < start < first + k_blocks)
            ends = [0, *inside, k_blocks]
            yield Block(
                matrix,
                slice(row * self.rows, min((row + 1) * self.rows, m)),
                slice(column * self.columns, min((column + 1) * self.columns, n)),
                list(itertools.pairwise(ends)),
            )

    def _place(self, tile: int, tiles_m: int, tiles_n: int) -> tuple[int, int]:
        """The row and the column of a tile: csrc/tile/scheduler.cuh."""
        rows = min(self.raster_group, tiles_m)
        group, index = divmod(tile, rows * tiles_n)
        column, row = divmod(index, min(rows, tiles_m - group * rows))
        return group * rows + row, column
