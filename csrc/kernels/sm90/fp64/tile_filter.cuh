// The walk of a kernel that computes a whole result, or only those tiles again that others flagged
// (TileFilter in core/params.h).
//
// Flags are bytes in the order of the tiles row by row, so a walk by rows finds the flag of a tile
// at its own index. Most results have none set: a warp looks at kAtOnce * 32 of the block's tiles
// at a time, and every warp of the block does so by itself, so that all come to the same tiles.
//
//   tiles   0 1 2 3 4 5 ..    block 1 of 3 looks at flags 1 4 7 10 ..
#pragma once

#include <cstdint>

#include "core/params.h"
#include "core/split_fp32.h"
#include "tile/scheduler.cuh"

namespace tcgemm::sm90 {

// Is there anything to do? To be asked once the kernels before are complete.
__device__ inline bool has_work(const TileFilter& filter) {
  if (filter.decision == nullptr) return true;
  return (*filter.decision & (filter.recompute_mask == nullptr ? kUseBf16 : kNeedsChecks)) != 0;
}

// The first flagged tile of this block from tile `index` on, or some number from `total` on.
__device__ inline std::int64_t next_selected_tile(const TileFilter& filter, std::int64_t index,
                                                  std::int64_t total) {
  constexpr int kAtOnce = 4;
  const std::int64_t step = gridDim.x;
  while (index < total) {
    bool set[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t at = index + (32 * i + threadIdx.x % 32) * step;
      set[i] = at < total && filter.recompute_mask[at] != 0;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const unsigned found = __ballot_sync(0xffffffffu, set[i]);
      if (found != 0) return index + (32 * i + __ffs(found) - 1) * step;
    }
    index += 32 * kAtOnce * step;
  }
  return index;
}

// Calls visit(tile) for each tile of this block that is wanted.
template <class Visit>
__device__ inline void for_each_selected_tile(const TileFilter& filter, const Tiling& tiling,
                                              Visit visit) {
  const bool all = filter.recompute_mask == nullptr;
  const Tiling order = {tiling.tiles_m, tiling.tiles_n, all ? tiling.raster_group : 1,
                        tiling.total};
  std::int64_t index = blockIdx.x;
  while (true) {
    if (!all) index = next_selected_tile(filter, index, order.total);
    if (index >= order.total) return;
    visit(tile::tile_at(order, index));
    index += gridDim.x;
  }
}

}  // namespace tcgemm::sm90
