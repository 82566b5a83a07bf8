// Scheduler + mainloop + epilogue of the kernels of sm_90a that accumulate in f64: a persistent CTA
// of one producer warpgroup and one or two consumer warpgroups. The producer runs ahead into the
// next tile while the epilogue of the current one stores.
//
//   warpgroup 0: 128 threads of cp.async      warpgroup 1, 2: mma.sync (mainloop.cuh)
//
// f64 operands have an f64 epilogue. With f32 operands each sum is rounded to f32, once, and the
// epilogue is that of f32 accumulators. Such a kernel can also recompute tiles of a result.
//
//   shared memory:  smem_d if results are f32 | pipeline stages | mbarriers
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/sm90/fp64/epilogue.cuh"
#include "kernels/sm90/fp64/mainloop.cuh"
#include "kernels/sm90/fp64/tile_filter.cuh"
#include "kernels/sm90/register_budget.cuh"
#include "ptx/dependent.cuh"
#include "ptx/fence.cuh"
#include "ptx/shared.cuh"
#include "tile/scheduler.cuh"
#include "tile/store.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig, template <GemmConfig> class MainloopOf>
struct Fp64Gemm {
  using Mainloop = MainloopOf<kConfig>;
  static constexpr RegisterBudget kBudget = register_budget(kConfig);
  static constexpr bool kRoundsToF32 = kConfig.input == DType::f32;
  static constexpr int kSmemDBytes = kRoundsToF32 ? kConfig.staging_bytes() : 0;
  static constexpr int kStagesBytes = kConfig.stages * kConfig.stage_bytes();
  static_assert(kSmemDBytes + kStagesBytes + 16 * kConfig.stages <= kConfig.shared_bytes());

  __device__ static void run(const CpAsyncParams& params, char* memory) {
    typename Mainloop::SharedStorage shared{};
    shared.stages = ptx::shared_address(memory) + kSmemDBytes;
    shared.barriers.base = shared.stages + kStagesBytes;
    if (threadIdx.x == 0) {
      shared.barriers.initialise(Mainloop::kWriters, Mainloop::kReaders);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    ptx::launch_dependents();
    ptx::wait_for_prerequisites();
    if constexpr (kRoundsToF32)
      if (!has_work(params.filter)) return;

    if (threadIdx.x < 128) {
      if constexpr (kBudget.load > 0) ptx::registers_decrease<kBudget.load>();
      load(params, shared);
    } else {
      if constexpr (kBudget.compute > 0) ptx::registers_increase<kBudget.compute>();
      compute(params, shared, (threadIdx.x - 128) / 32);
    }
  }

  // Calls visit(row, column, batch, k-blocks) for each tile of this CTA.
  template <class Visit>
  __device__ static void for_each_tile(const CpAsyncParams& params, Visit visit) {
    const int k_blocks = (params.extent.k + kConfig.tile_k() - 1) / kConfig.tile_k();
    const auto visit_tile = [&](const tile::TileCoord& tile) {
      visit(tile.m * kConfig.tile_m(), tile.n * kConfig.tile_n(), tile.batch, k_blocks);
    };
    if constexpr (kRoundsToF32) {
      for_each_selected_tile(params.filter, params.tiling, visit_tile);
    } else {
      for (std::int64_t index = blockIdx.x; index < params.tiling.total; index += gridDim.x)
        visit_tile(tile::tile_at(params.tiling, index));
    }
  }

  __device__ static void load(const CpAsyncParams& params,
                              const typename Mainloop::SharedStorage& shared) {
    typename Mainloop::PipelineState state;
    for_each_tile(params, [&](int row, int col, int batch, int k_blocks) {
      typename Mainloop::ProducerA a(params.a, params.a.stride_row, params.a.stride_col,
                                     params.a_vector, row, params.extent.m, params.extent.k, batch);
      typename Mainloop::ProducerB b(params.b, params.b.stride_col, params.b.stride_row,
                                     params.b_vector, col, params.extent.n, params.extent.k, batch);
#pragma unroll 1
      for (int k_block = 0; k_block < k_blocks; ++k_block) {
        const std::uint32_t stage = shared.stage(state.stage);
        ptx::mbarrier_wait(shared.barriers.empty(state.stage), state.parity ^ 1);
        a.load(stage);
        b.load(stage + Mainloop::LayoutA::kBytes);
        ptx::cp_async_arrive(shared.barriers.full(state.stage));
        state.advance();
      }
    });
    ptx::cp_async_wait<0>();
  }

  __device__ static void compute(const CpAsyncParams& params,
                                 typename Mainloop::SharedStorage& shared, int warp) {
    typename Mainloop::PipelineState state;
    typename Mainloop::Accumulators accumulators;
    const int group = threadIdx.x % 32 / 4, inside = threadIdx.x % 4;
    shared.lane_a = Mainloop::LayoutA::offset(Mainloop::warp_row(warp) + group, inside);
    shared.lane_b = Mainloop::LayoutA::kBytes +
                    Mainloop::LayoutB::offset(Mainloop::warp_col(warp) + group, inside);
    for_each_tile(params, [&](int row, int col, int batch, int k_blocks) {
      row += Mainloop::warp_row(warp);
      col += Mainloop::warp_col(warp);
      if (params.epilogue.has_terms) {
        for (int i = 0; i < Mainloop::kFragments; ++i)
          tile::prefetch(params.epilogue, tile::window(params.extent, row + 16 * i, col, batch),
                         Mainloop::kWarpN);
      }
      Mainloop::multiply(shared, state, k_blocks, accumulators);
      if constexpr (kRoundsToF32)
        store_rounded(params, smem_d(shared, warp), row, col, batch, accumulators);
      else
        store_f64(params.epilogue, params.extent, row, col, batch, accumulators);
    });
  }

  __device__ static char* smem_d(const typename Mainloop::SharedStorage& shared, int warp) {
    return static_cast<char*>(
        __cvta_shared_to_generic(shared.stages - kSmemDBytes + warp * kStagingBytes));
  }

  __device__ static void store_rounded(const CpAsyncParams& params, char* smem_d, int row, int col,
                                       int batch, const typename Mainloop::Accumulators& sums) {
    float rounded[Mainloop::kFragments][4 * Mainloop::kBlocks];
#pragma unroll
    for (int i = 0; i < Mainloop::kFragments; ++i)
#pragma unroll
      for (int j = 0; j < 4 * Mainloop::kBlocks; ++j)
        rounded[i][j] = static_cast<float>(sums[i][j]);
    tile::store_fragments<Mainloop::kWarpN, 32, float>(params.epilogue, params.extent, smem_d, row,
                                                       col, batch, rounded);
  }
};

}  // namespace tcgemm::sm90
