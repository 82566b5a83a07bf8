// The tiles that a kernel computes: all tiles of a result, or only those that the recompute mask
// selects (TileFilter in core/params.h).
#pragma once

#include <cstdint>

#include "core/params.h"
#include "core/split_fp32.h"
#include "tile/scheduler.cuh"

namespace tcgemm::sm90 {

// True if the kernel has any work. Must be called after griddepcontrol.wait.
__device__ inline bool has_work(const TileFilter& filter) {
  if (filter.decision == nullptr) return true;
  return (*filter.decision & (filter.recompute_mask == nullptr ? kUseBf16 : kNeedsChecks)) != 0;
}

// The mask has a word for each tile, in row-major order. The host sets a raster order by rows, so
// the index of a tile is the index of its word. Most masks select no tile, so a warp reads the
// words of kAtOnce * 32 tiles of the CTA at a time. Every warp does so by itself and finds the same
// tiles.
//
//   tiles   0 1 2 3 4 5 ..    CTA 1 of 3 reads words 1 4 7 10 ..
//
// The first selected tile of this CTA from tile `index` on; a number >= `total` if there is none.
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
      const unsigned marks = __ballot_sync(0xffffffffu, set[i]);
      if (marks != 0) return index + (32 * i + __ffs(marks) - 1) * step;
    }
    index += 32 * kAtOnce * step;
  }
  return index;
}

// Calls visit(tile) for each selected tile of this CTA.
template <class Visit>
__device__ inline void for_each_selected_tile(const TileFilter& filter, const Tiling& tiling,
                                              Visit visit) {
  const bool all = filter.recompute_mask == nullptr;
  std::int64_t index = blockIdx.x;
  while (true) {
    if (!all) index = next_selected_tile(filter, index, tiling.total);
    if (index >= tiling.total) return;
    visit(tile::tile_at(tiling, index));
    index += gridDim.x;
  }
}

}  // namespace tcgemm::sm90
