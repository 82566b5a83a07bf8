// The tile scheduler: a persistent loop in which each CTA, or cluster, processes every gridDim-th
// tile.
#pragma once

#include <cstdint>

#include "core/params.h"

namespace tcgemm::tile {

struct TileCoord {
  std::int32_t m, n, batch;  // n counts tiles, m counts clusters
};

// The result is divided into rows of clusters (cluster x tile_m rows each) and columns of tile_n
// columns. The scheduler visits `raster_group` rows together, with m as the fast index in the
// group. The tiles in flight at one time then form a nearly square block of the result, which gives
// the best reuse in L2:
//
//      n ->
//   m  0  3  6 |          raster_group = 3: tiles 0, 1, 2, ... run at the same time and share rows
//   |  1  4  7 |          of a and columns of b
//   v  2  5  8 |
//      --------+
//      9 ...
__device__ inline TileCoord tile_at(const Tiling& tiling, std::int64_t index) {
  const std::int64_t matrix = std::int64_t(tiling.tiles_m) * tiling.tiles_n;
  const std::int32_t batch = static_cast<std::int32_t>(index / matrix);
  // A matrix has fewer than 2^31 tiles: its extents fit 32 bits, and a tile is at least 64 x 16.
  const std::uint32_t rest = static_cast<std::uint32_t>(index - batch * matrix);
  const std::uint32_t group_tiles = std::uint32_t(tiling.raster_group) * tiling.tiles_n;
  const std::uint32_t first = rest / group_tiles * tiling.raster_group;
  const std::uint32_t rows = min(std::uint32_t(tiling.raster_group), tiling.tiles_m - first);
  const std::uint32_t index_in_group = rest % group_tiles;
  return {static_cast<std::int32_t>(first + index_in_group % rows),
          static_cast<std::int32_t>(index_in_group / rows), batch};
}

}  // namespace tcgemm::tile
