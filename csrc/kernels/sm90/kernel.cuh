// Scheduler + mainloop + epilogue for sm_90a: a persistent block of one loading warpgroup and one
// to three that compute. The loader runs ahead into the next tile while the epilogue of this one is
// stored.
//
//   warpgroup 0: thread 0 loads                 warpgroup 1, 2, ..: 64-row blocks of the tile
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/sm90/mainloop.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent.cuh"
#include "ptx/fence.cuh"
#include "ptx/shared.cuh"
#include "tile/scheduler.cuh"
#include "tile/store.cuh"

namespace tcgemm::sm90 {

// Registers of a loading and of a computing thread. The pool is what a block is launched with: 168
// a thread at 384 threads, 128 at 512. Asking for more hangs the GPU, so it is checked here.
struct Budget {
  int entry, load, compute;
};

constexpr Budget budget(const Kernel& row) {
  if (row.warpgroups == 3) return {128, 32, 160};
  if (row.warpgroups == 2) return {168, 40, 232};
  return {0, 0, 0};  // 256 threads have 255 registers each from the start
}

template <Kernel kRow>
struct Gemm {
  using Loop = Mainloop<kRow>;
  static constexpr Budget kBudget = budget(kRow);
  static_assert(kBudget.load + kRow.warpgroups * kBudget.compute <=
                kBudget.entry * (kRow.warpgroups + 1));
  // 512 threads have few registers left for the epilogue.
  static constexpr int kUnit = kRow.warpgroups == 3 ? 32 : 64;
  static constexpr int kRingBytes = kRow.stages * kRow.stage_bytes();

  __device__ static void run(const Sm90Params& params, char* shared) {
    // Dynamic shared memory starts at any multiple of 16: the swizzle wants 1024.
    const std::uint32_t base = ptx::shared_address(shared);
    const std::uint32_t ring = (base + 1023) & ~1023u;
    char* slabs = shared + (ring - base) + kRingBytes;
    const typename Loop::Barriers barriers{ring + kRingBytes + kRow.slab_bytes()};
    const typename Loop::Cluster cluster{ptx::cluster_size(), ptx::cluster_rank()};

    if (threadIdx.x == 0) {
      ptx::tma_prefetch(&params.a);
      ptx::tma_prefetch(&params.b);
      if (params.store_tma) ptx::tma_prefetch(&params.out);
      barriers.initialise(kRow.warpgroups * cluster.size);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (cluster.size > 1) ptx::cluster_sync();
    ptx::launch_dependents();
    ptx::wait_for_prerequisites();

    const int warpgroup = threadIdx.x / 128;
    if (warpgroup == 0) {
      if constexpr (kBudget.load > 0) ptx::registers_decrease<kBudget.load>();
      if (threadIdx.x == 0) load(params, ring, barriers, cluster);
    } else {
      if constexpr (kBudget.compute > 0) ptx::registers_increase<kBudget.compute>();
      compute(params, ring, slabs, barriers, cluster, warpgroup - 1);
    }
  }

  __device__ static int blocks_of_k(const Sm90Params& params) {
    return (params.extent.k + kRow.tile_k() - 1) / kRow.tile_k();
  }

  __device__ static void load(const Sm90Params& params, std::uint32_t ring,
                              const typename Loop::Barriers& barriers,
                              typename Loop::Cluster cluster) {
    typename Loop::Position position;
    const int blocks = blocks_of_k(params);
    for (std::int64_t index = blockIdx.x / cluster.size; index < params.tiling.total;
         index += gridDim.x / cluster.size) {
      const tile::Tile tile = tile::tile_at(params.tiling, index);
      const int row = (tile.m * cluster.size + cluster.rank) * kRow.tile_m();
      for (int block = 0; block < blocks; ++block) {
        ptx::mbarrier_wait(barriers.empty(position.stage), position.parity ^ 1);
        Loop::load(params, ring + position.stage * kRow.stage_bytes(),
                   barriers.full(position.stage), row, tile.n * kRow.tile_n(), tile.batch, block,
                   cluster);
        position.advance();
      }
    }
    // A block must outlive its peer's arrivals on its barriers: wait until every stage has come
    // back.
    if (cluster.size > 1) {
      for (int stage = 0; stage < kRow.stages; ++stage) {
        ptx::mbarrier_wait(barriers.empty(position.stage), position.parity ^ 1);
        position.advance();
      }
    }
  }

  __device__ static void compute(const Sm90Params& params, std::uint32_t ring, char* slabs,
                                 const typename Loop::Barriers& barriers,
                                 typename Loop::Cluster cluster, int warpgroup) {
    typename Loop::Position position;
    typename Loop::Accumulators accumulators;
    const int warp = threadIdx.x / 32 % 4;
    char* slab = slabs + (warpgroup * 4 + warp) * kSlabBytes;
    const int blocks = blocks_of_k(params);
    for (std::int64_t index = blockIdx.x / cluster.size; index < params.tiling.total;
         index += gridDim.x / cluster.size) {
      const tile::Tile tile = tile::tile_at(params.tiling, index);
      const int row = (tile.m * cluster.size + cluster.rank) * kRow.tile_m() +
                      warpgroup * kRow.m64_blocks * 64 + warp * 16;
      const int col = tile.n * kRow.tile_n();
      if (params.epilogue.options) {
        for (int i = 0; i < kRow.m64_blocks; ++i)
          tile::prefetch(params.epilogue,
                         tile::window(params.extent, row + i * 64, col, tile.batch), kRow.n);
      }
      Loop::multiply(ring, barriers, position, blocks, warpgroup, cluster, accumulators);
#pragma unroll
      for (int i = 0; i < kRow.m64_blocks; ++i)
        store(params, slab, accumulators[i], row + i * 64, col, tile.batch);
    }
    // Shared memory must outlive the last stores that read it.
    if (params.store_tma && threadIdx.x % 32 == 0) ptx::tma_store_wait_read();
  }

  // One warp's 16 rows of the tile.
  __device__ static void store(const Sm90Params& params, char* slab,
                               const typename Loop::Register (&fragment)[Loop::kRegisters], int row,
                               int col, int batch) {
    const Epilogue& epilogue = params.epilogue;
    const TensorMap* map = params.store_tma ? &params.out : nullptr;
    if (map != nullptr && epilogue.fast && epilogue.out_dtype == DType::bf16)
      tile::store_fast<kRow.n, kUnit, DType::bf16>(epilogue, params.extent, map, slab, fragment,
                                                   row, col, batch);
    else if (map != nullptr && epilogue.fast)
      tile::store_fast<kRow.n, kUnit, DType::f16>(epilogue, params.extent, map, slab, fragment, row,
                                                  col, batch);
    else
      tile::store_rows<kRow.n, kUnit, true>(epilogue, params.extent, map, slab, row, col, batch,
                                            [&](int unit, float (&v)[kUnit / 2]) {
                                              tile::select<kRow.n / kUnit>(fragment, unit, v);
                                            });
  }
};

}  // namespace tcgemm::sm90
