// The frame of the GEMM kernels of sm_90a, for TMA and for cp.async: the prologue, the registers of
// producer and consumer warpgroups, and the walk over the tiles.
// docs/dev/kernels/frame.md says what the kernels do not share, and why.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/cluster.cuh"
#include "kernels/sm90/register_budget.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent.cuh"
#include "ptx/fence.cuh"
#include "tile/scheduler.cuh"

namespace tcgemm::sm90 {

// A CTA is persistent: the producer runs ahead into the next tile while the epilogue of the current
// one stores.
//
//   warpgroup 0: producer      warpgroup 1, 2, ..: consumers
template <GemmConfig kConfig>
struct Frame {
  static constexpr RegisterBudget kBudget = register_budget(kConfig);
  static_assert(kBudget.load + kConfig.warpgroups * kBudget.compute <=
                kBudget.entry * (kConfig.warpgroups + 1));

  // One thread calls initialise(), which initialises the mbarriers. After the return all CTAs of
  // the cluster see them, and the kernels before this one have completed (ptx/dependent.cuh).
  template <class Cluster, class Initialise>
  __device__ static void prologue(Cluster cluster, const Initialise& initialise) {
    if (threadIdx.x == 0) {
      initialise();
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (cluster.size > 1) ptx::cluster_sync();
    ptx::launch_dependents();
    ptx::wait_for_prerequisites();
  }

  // All threads of a warpgroup call one of these first (setmaxnreg): the producer frees registers,
  // and the consumers wait until they are free.
  __device__ static void begin_producer() {
    if constexpr (kBudget.load > 0) ptx::registers_decrease<kBudget.load>();
  }
  __device__ static void begin_consumer() {
    if constexpr (kBudget.compute > 0) ptx::registers_increase<kBudget.compute>();
  }

  // The k-blocks of a matrix.
  template <class Params>
  __device__ static int k_blocks(const Params& params) {
    return (params.extent.k + kConfig.tile_k() - 1) / kConfig.tile_k();
  }
  // Those of a tile of matrix `batch` of the result, where it has `count` without slices.
  __device__ static int k_blocks(const CpAsyncParams&, int, int count) { return count; }
  __device__ static int k_blocks(const TmaParams& params, int batch, int count) {
    const Slices& slices = params.slices;
    if (!kConfig.divides_k() || slices.count == 1) return count;
    return slices.size(slices.slice(batch));
  }

  // Calls visit(row, column, batch, k-blocks, advance) for each tile of this CTA. `visit` calls
  // advance() once, which finds the next tile: a consumer does so while WGMMA is in flight.
  template <class Params, class Cluster, class Visit>
  __device__ __forceinline__ static void for_each_tile(const Params& params, Cluster cluster,
                                                       Visit visit) {
    const int count = k_blocks(params);
    tile::TileWalk walk(params.tiling, cluster.index());
    while (!walk.done()) {
      const tile::TileCoord tile = walk.tile();
      // The CTAs of a cluster have adjacent tiles, along n where they share a, else along m.
      constexpr bool kAlongN = kConfig.shares_a;
      const int tile_m = kAlongN ? tile.m : tile.m * cluster.size + cluster.rank;
      const int tile_n = kAlongN ? tile.n * cluster.size + cluster.rank : tile.n;
      visit(tile_m * kConfig.tile_m(), tile_n * kConfig.tile_n(), tile.batch,
            k_blocks(params, tile.batch, count), [&] { walk.advance(); });
    }
  }
};

}  // namespace tcgemm::sm90
