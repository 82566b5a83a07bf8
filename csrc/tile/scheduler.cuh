// Which tile of the result comes next: a persistent walk in which every block takes each gridDim-th
// tile.
//
// The result is cut into rows of clusters (cluster x tile_m rows each) and columns of tile_n.
// `group` rows are walked together, down the group first, so that the tiles in flight at one time
// form a block of the result that is as square as the L2 cache wants it:
//
//      n ->
//   m  0  3  6 |          group = 3, tiles 0, 1, 2, ... in flight together share rows of a
//   |  1  4  7 |          and columns of b
//   v  2  5  8 |
//      --------+
//      9 ...
#pragma once

#include <cstdint>

#include "core/params.h"

namespace tcgemm::tile {

struct TileCoord {
  std::int32_t m, n, batch;  // in units of tiles; m in units of clusters
};

__device__ inline TileCoord tile_at(const Tiling& tiling, std::int64_t index) {
  const std::int64_t matrix = std::int64_t(tiling.tiles_m) * tiling.tiles_n;
  const std::int32_t batch = static_cast<std::int32_t>(index / matrix);
  // A matrix has fewer than 2^31 tiles: its rows and columns fit 32 bits and a tile is 64 x 32 at
  // least.
  const std::uint32_t rest = static_cast<std::uint32_t>(index - batch * matrix);
  const std::uint32_t group_tiles = std::uint32_t(tiling.raster_group) * tiling.tiles_n;
  const std::uint32_t first = rest / group_tiles * tiling.raster_group;
  const std::uint32_t rows = min(std::uint32_t(tiling.raster_group), tiling.tiles_m - first);
  const std::uint32_t inside = rest % group_tiles;
  return {static_cast<std::int32_t>(first + inside % rows),
          static_cast<std::int32_t>(inside / rows), batch};
}

}  // namespace tcgemm::tile
