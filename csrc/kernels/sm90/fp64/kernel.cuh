// Scheduler + mainloop + epilogue for products that are added up as f64 on sm_90a: a persistent
// block of one loading warpgroup and one or two that multiply. The loader runs ahead into the next
// tile while the epilogue of this one is stored.
//
//   warpgroup 0: 128 threads of cp.async      warpgroup 1, 2: mma.sync (f64_mainloop.cuh)
//
// f64 operands have an epilogue in f64. With f32 operands each sum is rounded to f32, once, and
// what follows is the epilogue of f32 accumulators; such a kernel can also repair a result.
//
// Shared memory: slabs where results are f32, the ring, then its barriers.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/sm90/register_budget.cuh"
#include "kernels/sm90/fp64/epilogue.cuh"
#include "kernels/sm90/fp64/mainloop.cuh"
#include "kernels/sm90/fp64/tile_filter.cuh"
#include "ptx/dependent.cuh"
#include "ptx/fence.cuh"
#include "ptx/shared.cuh"
#include "tile/scheduler.cuh"
#include "tile/store.cuh"

namespace tcgemm::sm90 {

template <Kernel kRow>
struct GemmF64 {
  using Loop = MainloopF64<kRow>;
  static constexpr Budget kBudget = budget(kRow);
  static constexpr bool kRounds = kRow.input == DType::f32;
  static constexpr int kSlabs = kRounds ? kRow.slab_bytes() : 0;
  static constexpr int kRingBytes = kRow.stages * kRow.stage_bytes();
  static_assert(kSlabs + kRingBytes + 16 * kRow.stages <= kRow.shared_bytes());

  __device__ static void run(const Sm80Params& params, char* memory) {
    typename Loop::Shared shared{};
    shared.ring = ptx::shared_address(memory) + kSlabs;
    shared.barriers.base = shared.ring + kRingBytes;
    if (threadIdx.x == 0) {
      shared.barriers.initialise(Loop::kWriters, Loop::kReaders);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    ptx::launch_dependents();
    ptx::wait_for_prerequisites();
    if constexpr (kRounds)
      if (!wanted(params.repair)) return;

    if (threadIdx.x < 128) {
      if constexpr (kBudget.load > 0) ptx::registers_decrease<kBudget.load>();
      load(params, shared);
    } else {
      if constexpr (kBudget.compute > 0) ptx::registers_increase<kBudget.compute>();
      compute(params, shared, (threadIdx.x - 128) / 32);
    }
  }

  // Calls visit(row, column, batch, k-blocks) for each tile of this block.
  template <class Visit>
  __device__ static void for_each_tile(const Sm80Params& params, Visit visit) {
    const int blocks = (params.extent.k + kRow.tile_k() - 1) / kRow.tile_k();
    const auto visit_tile = [&](const tile::Tile& tile) {
      visit(tile.m * kRow.tile_m(), tile.n * kRow.tile_n(), tile.batch, blocks);
    };
    if constexpr (kRounds) {
      for_each_wanted(params.repair, params.tiling, visit_tile);
    } else {
      for (std::int64_t index = blockIdx.x; index < params.tiling.total; index += gridDim.x)
        visit_tile(tile::tile_at(params.tiling, index));
    }
  }

  __device__ static void load(const Sm80Params& params, const typename Loop::Shared& shared) {
    typename Loop::Position position;
    for_each_tile(params, [&](int row, int col, int batch, int blocks) {
      typename Loop::LoaderA a(params.a, params.a.stride_row, params.a.stride_col, params.a_vector,
                               row, params.extent.m, params.extent.k, batch);
      typename Loop::LoaderB b(params.b, params.b.stride_col, params.b.stride_row, params.b_vector,
                               col, params.extent.n, params.extent.k, batch);
#pragma unroll 1
      for (int block = 0; block < blocks; ++block) {
        const std::uint32_t stage = shared.stage(position.stage);
        ptx::mbarrier_wait(shared.barriers.empty(position.stage), position.parity ^ 1);
        a.load(stage);
        b.load(stage + Loop::OperandA::kBytes);
        ptx::cp_async_arrive(shared.barriers.full(position.stage));
        position.advance();
      }
    });
    ptx::cp_async_wait<0>();
  }

  __device__ static void compute(const Sm80Params& params, typename Loop::Shared& shared,
                                 int warp) {
    typename Loop::Position position;
    typename Loop::Accumulators accumulators;
    const int group = threadIdx.x % 32 / 4, inside = threadIdx.x % 4;
    shared.lane_a = Loop::OperandA::offset(Loop::warp_row(warp) + group, inside);
    shared.lane_b =
        Loop::OperandA::kBytes + Loop::OperandB::offset(Loop::warp_col(warp) + group, inside);
    for_each_tile(params, [&](int row, int col, int batch, int blocks) {
      row += Loop::warp_row(warp);
      col += Loop::warp_col(warp);
      if (params.epilogue.options) {
        for (int i = 0; i < Loop::kFragments; ++i)
          tile::prefetch(params.epilogue, tile::window(params.extent, row + 16 * i, col, batch),
                         Loop::kWarpN);
      }
      Loop::multiply(shared, position, blocks, accumulators);
      if constexpr (kRounds)
        store_rounded(params, slab(shared, warp), row, col, batch, accumulators);
      else
        store_f64(params.epilogue, params.extent, row, col, batch, accumulators);
    });
  }

  __device__ static char* slab(const typename Loop::Shared& shared, int warp) {
    return static_cast<char*>(__cvta_shared_to_generic(shared.ring - kSlabs + warp * kSlabBytes));
  }

  __device__ static void store_rounded(const Sm80Params& params, char* slab, int row, int col,
                                       int batch, const typename Loop::Accumulators& sums) {
    float rounded[Loop::kFragments][4 * Loop::kBlocks];
#pragma unroll
    for (int i = 0; i < Loop::kFragments; ++i)
#pragma unroll
      for (int j = 0; j < 4 * Loop::kBlocks; ++j) rounded[i][j] = static_cast<float>(sums[i][j]);
    tile::store_fragments<Loop::kWarpN, 32, float>(params.epilogue, params.extent, slab, row, col,
                                                   batch, rounded);
  }
};

}  // namespace tcgemm::sm90
