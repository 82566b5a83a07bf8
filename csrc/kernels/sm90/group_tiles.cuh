// The tiles of a grouped product. They depend on offs, which the host does not read: a warp finds
// them, and passes them to the other warps through a ring (tile_ring.cuh).
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/cluster.cuh"
#include "kernels/sm90/tile_ring.cuh"
#include "tile/groups.cuh"

namespace tcgemm::sm90 {

// TMA loads only from multiples of 16 bytes along the contiguous dimension: with swizzled boxes it
// raises an illegal instruction on an H200 elsewhere. So the first k-block of a K-major operand
// begins up to 15 bytes before the group.
template <GemmConfig kConfig>
__device__ inline int first_loaded_k(int begin) {
  constexpr int kVector = 128 / bits(kConfig.input);
  return kConfig.layout == Layout::NT ? begin : begin / kVector * kVector;
}

// Writes the tiles of this CTA into the ring, as a warp.
template <GemmConfig kConfig>
__device__ inline void schedule_groups(const TmaParams& params, TileRing<kConfig> ring,
                                       const Cluster& cluster) {
  constexpr bool kRows = kConfig.grouped == Axis::m;
  tile::GroupWalk<kConfig.grouped> walk(params.groups, params.extent,
                                        kConfig.tile_m() * cluster.size_m);
  const bool writes = threadIdx.x % 32 == 0;
  const int step = gridDim.x / cluster.size_m;  // a cluster is as high as the grid
  tile::GroupTile found;
  for (int tile = cluster.index(); walk.find(tile, found); tile += step) {
    const int m = found.m * cluster.size_m + cluster.rank_m;
    const int n = found.n * cluster.size_n + cluster.rank_n;
    if (writes)
      ring.write({found.group, (kRows ? found.begin : 0) + m * kConfig.tile_m(),
                  n * kConfig.tile_n(), found.begin, found.end});
  }
  if (writes) ring.write({});
}

}  // namespace tcgemm::sm90
