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
__device__ inline TileCoord tile_of_matrix(const Tiling& tiling, std::uint32_t index,
                                           std::int32_t batch) {
  const std::uint32_t group = tiling.group.quotient(index);
  const std::uint32_t index_in_group = index - group * tiling.group.value;
  const std::int32_t first = group * tiling.rows.value;
  const Divisor& rows = first < tiling.last_first ? tiling.rows : tiling.last_rows;
  const std::uint32_t column = rows.quotient(index_in_group);
  return {static_cast<std::int32_t>(first + index_in_group - column * rows.value),
          static_cast<std::int32_t>(column), batch};
}

// Tile `index` of the batch. A matrix has fewer than 2^31 tiles: its extents fit 32 bits, and a
// tile is at least 64 x 16. A batch may have more.
__device__ inline TileCoord tile_at(const Tiling& tiling, std::int64_t index) {
  const std::int32_t batch = index < Divisor::kLimit
                                 ? tiling.matrix.quotient(static_cast<std::uint32_t>(index))
                                 : static_cast<std::int32_t>(index / tiling.matrix.value);
  const std::int64_t first = std::int64_t(batch) * tiling.matrix.value;
  return tile_of_matrix(tiling, static_cast<std::uint32_t>(index - first), batch);
}

// The tiles of a persistent CTA or cluster: from tile `first` on, every (clusters of the grid)-th.
class TileWalk {
 public:
  __device__ TileWalk(const Tiling& tiling, std::uint32_t first) : tiling_(tiling) { seek(first); }

  // Goes on from a tile.
  __device__ void seek(std::uint32_t tile) {
    batch_ = tiling_.matrix.quotient(tile);
    index_ = tile - batch_ * tiling_.matrix.value;
    tile_ = tile_of_matrix(tiling_, index_, batch_);
  }

  __device__ bool done() const { return batch_ >= tiling_.batch; }
  __device__ TileCoord tile() const { return tile_; }
  // Without a division, nor a call: WGMMA may be in flight.
  __device__ void advance() {
    index_ += tiling_.step_rest;
    batch_ += tiling_.step_batch;
    if (index_ >= tiling_.matrix.value) {
      index_ -= tiling_.matrix.value;
      ++batch_;
    }
    tile_ = tile_of_matrix(tiling_, index_, batch_);
  }

 private:
  const Tiling& tiling_;
  std::uint32_t index_;  // in its matrix
  std::int32_t batch_;
  TileCoord tile_;
};

}  // namespace tcgemm::tile
