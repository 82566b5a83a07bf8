// The frame of the GEMM kernels of sm_90a, for TMA and for cp.async: the prologue, the registers of
// producer and consumer warpgroups, and the walk over the tiles.
// docs/dev/kernels/frame.md says what the kernels do not share, and why.
#pragma once

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/cluster.cuh"
#include "kernels/sm90/register_budget.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent.cuh"
#include "ptx/fence.cuh"
#include "ptx/named_barrier.cuh"
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

  // The start of a CTA. Each warp does what it can before it waits: the first loads and the set-up
  // of the consumers overlap, and both overlap the kernels before this one.
  //
  // Warp 0 calls this first. Its first thread calls initialise(), which initialises the mbarriers.
  // After the return all CTAs of the cluster see them.
  template <class Cluster, class Initialise>
  __device__ static void start_first_warp(Cluster cluster, const Initialise& initialise) {
    if (threadIdx.x == 0) {
      initialise();
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::named_barrier_arrive(kStart, kConfig.threads());
    if (cluster.size() > 1) ptx::cluster_sync();
  }
  // The other warps call this first.
  template <class Cluster>
  __device__ static void start(Cluster cluster) {
    if (cluster.size() > 1) ptx::cluster_arrive_relaxed();
  }
  // And this before they use the mbarriers or global memory. After the return the kernels before
  // this one have completed (ptx/dependent.cuh).
  template <class Cluster>
  __device__ static void finish_start(Cluster cluster) {
    ptx::named_barrier_sync(kStart, kConfig.threads());
    if (cluster.size() > 1) ptx::cluster_wait();
    ptx::wait_for_prerequisites();
  }
  // A thread calls this before it loads what other kernels may write, unless the kernel lets the
  // next one start later (sm90/kernel.cuh). The next kernel may start after that: so when it runs,
  // the kernels before this one have completed, and it can load at once what this kernel does not
  // write.
  __device__ static void begin_loads() {
    ptx::wait_for_prerequisites();
    ptx::launch_dependents();
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
  // The k-blocks of a tile of matrix `batch` of the result. It has `count` without slices.
  template <class Params, class Cluster>
  __device__ static int k_blocks(const Params& params, Cluster cluster, int batch, int count) {
    const Slices& slices = params.slices;
    if (!kConfig.has_slices() || slices.count == 1) return count;
    return slices.size(slices.slice(batch, cluster.slice));
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
      visit(row(tile, cluster), col(tile, cluster), tile.batch,
            k_blocks(params, cluster, tile.batch, count), [&] { walk.advance(); });
    }
  }

  // The CTAs of a cluster that share b have adjacent rows, and those that share a adjacent columns.
  template <class Cluster>
  __device__ static int row(const tile::TileCoord& tile, const Cluster& cluster) {
    return (tile.m * cluster.size_m + cluster.rank_m) * kConfig.tile_m();
  }
  template <class Cluster>
  __device__ static int col(const tile::TileCoord& tile, const Cluster& cluster) {
    return (tile.n * cluster.size_n + cluster.rank_n) * kConfig.tile_n();
  }

 private:
  static constexpr int kStart = 0;  // a named barrier
};

}  // namespace tcgemm::sm90
