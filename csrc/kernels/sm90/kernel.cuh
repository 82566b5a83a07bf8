// Scheduler + mainloop + epilogue for sm_90a: a persistent block of one loading warpgroup and one
// to three that compute. The loader runs ahead into the next tile while the epilogue of this one is
// stored.
//
//   warpgroup 0: warp 0 loads, others load scales or send columns of the result
//   warpgroup 1, 2, ..: 64-row blocks of the tile
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/params.h"
#include "kernels/sm90/pingpong.cuh"
#include "kernels/sm90/producer.cuh"
#include "kernels/sm90/register_budget.cuh"
#include "kernels/sm90/rescale.cuh"
#include "kernels/sm90/scales.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "tile/scheduler.cuh"
#include "tile/store.cuh"
#include "tile/tma_store_columns.cuh"

namespace tcgemm::sm90 {

// Columns that the epilogue works on at a time: as many as there are registers for beside the
// accumulators. s32 values are there twice.
constexpr int epilogue_columns(const GemmConfig& config) {
  const bool s32 = config.accumulator == DType::s32, turns = config.interleaved_rows();
  if (s32 + turns + (config.warpgroups == 3) >= 2) return 16;
  return s32 || turns || config.warpgroups == 3 || config.m64_blocks == 2 || config.promotes() ? 32
                                                                                               : 64;
}

template <GemmConfig kConfig, template <GemmConfig> class MainloopOf>
struct Gemm {
  using Mainloop = MainloopOf<kConfig>;
  using PipelineState = tile::PipelineState<kConfig.stages>;
  using Value = tile::Value<kConfig.accumulator>;
  static constexpr tile::RowOrder kRowOrder =
      kConfig.interleaved_rows() ? tile::RowOrder::interleaved : tile::RowOrder::native;
  static constexpr RegisterBudget kBudget = register_budget(kConfig);
  static_assert(kBudget.load + kConfig.warpgroups * kBudget.compute <=
                kBudget.entry * (kConfig.warpgroups + 1));
  static constexpr int kUnit = epilogue_columns(kConfig);
  static constexpr int kFastUnit =
      kConfig.interleaved_rows() && kConfig.warpgroups < 3 ? 32 : kUnit;
  // The result of 32 bits that has a fast way out.
  static constexpr DType kWordOut = kConfig.accumulator == DType::s32 ? DType::s32 : DType::f32;

  __device__ static void run(const TmaParams& params, char* memory) {
    const SharedStorage<kConfig> shared(memory);
    const Cluster cluster{ptx::cluster_size(), ptx::cluster_rank()};

    if (threadIdx.x == 0) {
      ptx::tma_prefetch(&params.a);
      ptx::tma_prefetch(&params.b);
      if (params.tma_store != TmaStore::none) ptx::tma_prefetch(&params.out);
      shared.barriers.initialise(1, kConfig.warpgroups * cluster.size);
      if constexpr (kConfig.block_scaled)
        shared.scale_barriers.initialise(ColumnScales<kConfig>::kWriters,
                                         ColumnScales<kConfig>::kReaders);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (cluster.size > 1) ptx::cluster_sync();
    ptx::launch_dependents();
    ptx::wait_for_prerequisites();
    if constexpr (kConfig.terms > 1)
      if (!Mainloop::decided(params)) return;

    const int warpgroup = threadIdx.x / 128;
    if (warpgroup == 0) {
      if constexpr (kBudget.load > 0) ptx::registers_decrease<kBudget.load>();
      if (threadIdx.x / 32 == 0) load(params, shared, cluster);
      if constexpr (kConfig.block_scaled)
        if (const int warp = threadIdx.x / 32 - 1;
            scales_columns(params) && warp >= 0 && warp < ColumnScales<kConfig>::kWarps)
          load_scales(params, shared, cluster, warp);
      if constexpr (kConfig.tma_stores_columns())
        if (const int warp = threadIdx.x / 32 - 1;
            params.tma_store == TmaStore::columns && warp >= 0 && warp < kConfig.warpgroups)
          run_store_warp(params, shared, cluster, warp);
    } else {
      if constexpr (kBudget.compute > 0) ptx::registers_increase<kBudget.compute>();
      compute(params, shared, cluster, warpgroup - 1);
    }
  }

  // Calls visit(row, column, batch, k-blocks) for each tile of this block.
  template <class Visit>
  __device__ static void for_each_tile(const TmaParams& params, Cluster cluster, Visit visit) {
    const int blocks = (params.extent.k + kConfig.tile_k() - 1) / kConfig.tile_k();
    for (std::int64_t index = blockIdx.x / cluster.size; index < params.tiling.total;
         index += gridDim.x / cluster.size) {
      const tile::TileCoord tile = tile::tile_at(params.tiling, index);
      visit((tile.m * cluster.size + cluster.rank) * kConfig.tile_m(), tile.n * kConfig.tile_n(),
            tile.batch, blocks);
    }
  }

  __device__ static void load(const TmaParams& params, const SharedStorage<kConfig>& shared,
                              Cluster cluster) {
    PipelineState state;
    for_each_tile(params, cluster, [&](int row, int col, int batch, int blocks) {
      for (int block = 0; block < blocks; ++block) {
        ptx::mbarrier_wait(shared.barriers.empty(state.stage), state.parity ^ 1);
        if (ptx::elect())
          TmaProducer<kConfig>::load(params, shared.stage(state.stage),
                                     shared.barriers.full(state.stage), row, col, batch, block,
                                     cluster);
        state.advance();
      }
    });
    // A block must outlive its peer's arrivals on its barriers: wait until every stage has come
    // back.
    if (cluster.size > 1) {
      for (int stage = 0; stage < kConfig.stages; ++stage) {
        ptx::mbarrier_wait(shared.barriers.empty(state.stage), state.parity ^ 1);
        state.advance();
      }
    }
  }

  __device__ static void load_scales(const TmaParams& params, const SharedStorage<kConfig>& shared,
                                     Cluster cluster, int warp) {
    typename ColumnScales<kConfig>::PipelineState state;
    for_each_tile(params, cluster, [&](int, int col, int batch, int blocks) {
      ColumnScales<kConfig>::load(params, shared, state, col, batch, blocks, warp);
    });
  }

  __device__ static void run_store_warp(const TmaParams& params,
                                        const SharedStorage<kConfig>& shared, Cluster cluster,
                                        int warpgroup) {
    static_assert(kConfig.m64_blocks == 1);
    const tile::StoreWarp store_warp(&params.out, shared.smem_d + warpgroup * 4 * kStagingBytes,
                                     warpgroup);
    store_warp.begin();
    for_each_tile(params, cluster, [&](int row, int col, int batch, int) {
      store_warp.store(kConfig.n, row + warpgroup * 64, col, batch);
    });
    store_warp.end();
  }

  __device__ static void compute(const TmaParams& params, const SharedStorage<kConfig>& shared,
                                 Cluster cluster, int warpgroup) {
    typename Mainloop::PipelineState state;
    const int warp = threadIdx.x / 32 % 4;
    char* smem_d = shared.smem_d + (warpgroup * 4 + warp) * kStagingBytes;
    if constexpr (kConfig.promotes()) PingPong<kConfig>::begin(warpgroup);
    for_each_tile(params, cluster, [&](int tile_row, int col, int batch, int blocks) {
      const int row = tile_row + warpgroup * kConfig.m64_blocks * 64 + warp * 16;
      if (params.epilogue.has_terms) {
        for (int i = 0; i < kConfig.m64_blocks; ++i)
          tile::prefetch(params.epilogue, tile::window(params.extent, row + i * 64, col, batch),
                         kConfig.n);
      }
      if (params.epilogue.scaled)
        tile::prefetch_scales(params.epilogue, tile::window(params.extent, row, col, batch),
                              kConfig.n);
      // Fresh ones for each tile: the first product does not read them, and so the epilogue of the
      // tile before need not keep what it has used up.
      typename Mainloop::Accumulators accumulators;
      if constexpr (kConfig.block_scaled)
        Mainloop::multiply_scaled(params, shared, state, row, col, batch, blocks, warpgroup,
                                  cluster, accumulators);
      else
        Mainloop::multiply(shared, state, blocks, warpgroup, cluster, accumulators);
      if constexpr (kConfig.terms > 1)
        Rescale<kConfig.n>(params, row, col, batch).run(accumulators[0]);
#pragma unroll
      for (int i = 0; i < kConfig.m64_blocks; ++i)
        store(params, smem_d, warpgroup, accumulators[i], row + i * 64, col, batch);
    });
    // Shared memory must outlive the last stores that read it.
    if (params.tma_store == TmaStore::rows) ptx::tma_store_wait_read<0>();
    if constexpr (kConfig.tma_stores_columns())
      if (params.tma_store == TmaStore::columns) tile::drain_store_warp(warpgroup);
  }

  // One warp's 16 rows of the tile.
  __device__ static void store(const TmaParams& params, char* smem_d, int warpgroup,
                               const typename Mainloop::Register (&fragment)[Mainloop::kRegisters],
                               int row, int col, int batch) {
    const Epilogue& epilogue = params.epilogue;
    if constexpr (kConfig.tma_stores_columns()) {
      char* warpgroup_smem_d = smem_d - threadIdx.x / 32 % 4 * kStagingBytes;  // of the warpgroup
      if (params.tma_store == TmaStore::columns)
        return tile::stage_columns<kConfig.column_store_dtype(), kConfig.n>(warpgroup_smem_d,
                                                                            warpgroup, fragment);
    }
    const TensorMap* map = params.tma_store == TmaStore::rows ? &params.out : nullptr;
    bool fast = epilogue.unrolled && map != nullptr;
    if constexpr (kRowOrder == tile::RowOrder::interleaved) {
      const tile::Window window = tile::window<kRowOrder>(params.extent, row, col, batch);
      if (tile::whole_columns(epilogue, window, kConfig.n)) {
        if (tile::store_plain_columns<kConfig.accumulator>(epilogue, window, fragment)) return;
        fast = epilogue.unrolled && bits(epilogue.out_dtype) == 16;
      }
    }
    if (fast && epilogue.out_dtype == DType::bf16)
      tile::store_fast<kConfig.n, kFastUnit, DType::bf16, kRowOrder>(
          epilogue, params.extent, map, smem_d, fragment, row, col, batch);
    else if (fast && epilogue.out_dtype == DType::f16)
      tile::store_fast<kConfig.n, kFastUnit, DType::f16, kRowOrder>(
          epilogue, params.extent, map, smem_d, fragment, row, col, batch);
    else if (kRowOrder == tile::RowOrder::native && fast && epilogue.out_dtype == kWordOut)
      tile::store_fast<kConfig.n, kFastUnit, kWordOut, kRowOrder>(
          epilogue, params.extent, map, smem_d, fragment, row, col, batch);
    else
      tile::store_rows<kConfig.n, kUnit, true, Value, kRowOrder>(
          epilogue, params.extent, map, smem_d, row, col, batch,
          [&](int unit, Value(&v)[kUnit / 2]) {
            tile::select<kConfig.n / kUnit>(fragment, unit, v);
          });
  }
};

}  // namespace tcgemm::sm90
