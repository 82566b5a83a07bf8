// Producer + mainloop + epilogue for the kernels of sm_90a that accumulate in f64: operands by
// cp.async, products by mma.sync. frame.cuh has the split into warpgroups.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/sm90/fp64/mainloop.cuh"
#include "kernels/sm90/fp64/tile_filter.cuh"
#include "kernels/sm90/frame.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"
#include "tile/fp64_epilogue.cuh"
#include "tile/store.cuh"

namespace tcgemm::sm90 {

// The roles of the warpgroups:
//
//   warpgroup 0: 128 threads of cp.async      warpgroup 1, 2: mma.sync (mainloop.cuh)
//
// f64 operands have an f64 epilogue. With f32 operands each sum is rounded to f32, once, and the
// epilogue is the one for f32 accumulators. Such a kernel can also recompute tiles of a result.
//
//   shared memory:  smem_d if results are f32 | pipeline stages | mbarriers
template <GemmConfig kConfig, EpiloguePath kPath, template <GemmConfig> class MainloopOf>
struct Fp64Gemm {
  static constexpr bool kRoundsToF32 = kConfig.input == DType::f32;
  using Frame = sm90::Frame<kConfig>;
  using Mainloop = MainloopOf<kConfig>;
  using SharedStorage = typename Mainloop::SharedStorage;
  static constexpr int kSmemDBytes = kRoundsToF32 ? kConfig.staging_bytes() : 0;
  static constexpr int kStagesBytes = kConfig.stages * kConfig.stage_bytes();
  static_assert(kSmemDBytes + kStagesBytes + 16 * kConfig.stages <= kConfig.shared_bytes());

  __device__ static void run(const CpAsyncParams& params, char* memory) {
    SharedStorage shared{};
    shared.stages = ptx::shared_address(memory) + kSmemDBytes;
    shared.barriers.base = shared.stages + kStagesBytes;
    if (threadIdx.x == 0) {
      shared.barriers.initialise(Mainloop::kWriters, Mainloop::kReaders);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    Frame::begin_loads();
    if constexpr (kRoundsToF32)
      if (!has_work(params.filter)) return;
    if (threadIdx.x < 128) {
      Frame::begin_producer();
      produce(params, shared);
    } else {
      Frame::begin_consumer();
      consume(params, shared, (threadIdx.x - 128) / 32);
    }
  }

 private:
  // Calls visit(row, column, batch, k-blocks, advance) for each tile that this CTA is to compute.
  template <class Visit>
  __device__ static void for_each_tile(const CpAsyncParams& params, Visit visit) {
    if constexpr (kRoundsToF32) {
      const int count = Frame::k_blocks(params);
      const auto visit_tile = [&](const tile::TileCoord& tile) {
        visit(tile.m * kConfig.tile_m(), tile.n * kConfig.tile_n(), tile.batch,
              Frame::k_blocks(params, SingleCta{}, tile.batch, count), [] {});
      };
      for_each_selected_tile(params.filter, params.tiling, visit_tile);
    } else {
      Frame::for_each_tile(params, SingleCta{}, visit);
    }
  }

  __device__ static void produce(const CpAsyncParams& params, const SharedStorage& shared) {
    typename Mainloop::PipelineState state;
    const Slices& slices = params.slices;
    for_each_tile(params, [&](int row, int col, int batch, int k_blocks, const auto& advance) {
      const int matrix = slices.matrix(batch);
      const int first = slices.first(slices.slice(batch, 0));
      typename Mainloop::ProducerA a(params.a, params.a.stride_row, params.a.stride_col,
                                     params.a_vector, row, params.extent.m, params.extent.k,
                                     matrix);
      typename Mainloop::ProducerB b(params.b, params.b.stride_col, params.b.stride_row,
                                     params.b_vector, col, params.extent.n, params.extent.k,
                                     matrix);
      a.skip(first);
      b.skip(first);
#pragma unroll 1
      for (int k_block = 0; k_block < k_blocks; ++k_block) {
        const std::uint32_t stage = shared.stage(state.stage);
        shared.barriers.producer_acquire(state);
        a.load(stage);
        b.load(stage + Mainloop::LayoutA::kBytes);
        ptx::cp_async_arrive(shared.barriers.full(state.stage));
        state.advance();
      }
      advance();
    });
    ptx::cp_async_wait<0>();
  }

  __device__ static void consume(const CpAsyncParams& params, SharedStorage& shared, int warp) {
    typename Mainloop::PipelineState state;
    typename Mainloop::Accumulators accumulators;
    const int group = threadIdx.x % 32 / 4, inside = threadIdx.x % 4;
    shared.lane_a = Mainloop::LayoutA::offset(Mainloop::warp_row(warp) + group, inside);
    shared.lane_b = Mainloop::LayoutA::kBytes +
                    Mainloop::LayoutB::offset(Mainloop::warp_col(warp) + group, inside);
    for_each_tile(params, [&](int row, int col, int batch, int k_blocks, const auto& advance) {
      row += Mainloop::warp_row(warp);
      col += Mainloop::warp_col(warp);
      if (params.epilogue.has_terms) {
        for (int i = 0; i < Mainloop::kFragments; ++i)
          tile::prefetch(params.epilogue, tile::window(params.extent, row + 16 * i, col, batch),
                         Mainloop::kWarpN);
      }
      Mainloop::multiply(shared, state, k_blocks, accumulators);
      if constexpr (!kRoundsToF32)
        tile::store_f64(params.epilogue, params.extent, row, col, batch, accumulators);
      else if (params.slices.count > 1)
        store_sums(params, row, col, batch, accumulators);
      else
        store_rounded(params, smem_d(shared, warp), row, col, batch, accumulators);
      advance();
    });
  }

  __device__ static char* smem_d(const SharedStorage& shared, int warp) {
    return static_cast<char*>(
        __cvta_shared_to_generic(shared.stages - kSmemDBytes + warp * kStagingBytes));
  }

  // Stores the sums of a slice of k as they are.
  __device__ static void store_sums(const CpAsyncParams& params, int row, int col, int batch,
                                    const typename Mainloop::Accumulators& sums) {
#pragma unroll
    for (int i = 0; i < Mainloop::kFragments; ++i)
      tile::store_direct(params.epilogue, tile::window(params.extent, row + 16 * i, col, batch),
                         sums[i]);
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
