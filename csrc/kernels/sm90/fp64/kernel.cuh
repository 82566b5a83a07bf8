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
#include "tile/groups.cuh"
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
  struct Tile {
    int row, col, batch, k_blocks;
    int begin = 0, end = 0;  // of a group: its rows, or its k
  };

  // The extents around a tile: nothing outside of them is read or stored.
  __device__ static decltype(auto) extent_of(const CpAsyncParams& params, const Tile& tile) {
    const Extent& all = params.extent;
    if constexpr (kConfig.grouped == Axis::m)
      return Extent{tile.end, all.n, all.k, all.batch};
    else if constexpr (kConfig.grouped == Axis::k)
      return Extent{all.m, all.n, tile.end - tile.begin, all.batch};
    else
      return (params.extent);
  }

  // Calls visit(tile, advance) for each tile that this CTA is to compute.
  template <class Visit>
  __device__ static void for_each_tile(const CpAsyncParams& params, Visit visit) {
    if constexpr (kConfig.is_grouped()) {
      constexpr bool kRows = kConfig.grouped == Axis::m;
      tile::GroupWalk<kConfig.grouped> walk(params.groups, params.extent, kConfig.tile_m());
      tile::GroupTile found;
      for (int tile = blockIdx.x; walk.find(tile, found); tile += gridDim.x) {
        const int k = kRows ? params.extent.k : found.end - found.begin;
        visit(Tile{(kRows ? found.begin : 0) + found.m * kConfig.tile_m(),
                   found.n * kConfig.tile_n(), found.group,
                   (k + kConfig.tile_k() - 1) / kConfig.tile_k(), found.begin, found.end},
              [] {});
      }
    } else if constexpr (kRoundsToF32) {
      const int count = Frame::k_blocks(params);
      const auto visit_tile = [&](const tile::TileCoord& tile) {
        visit(Tile{tile.m * kConfig.tile_m(), tile.n * kConfig.tile_n(), tile.batch,
                   Frame::k_blocks(params, SingleCta{}, tile.batch, count)},
              [] {});
      };
      for_each_selected_tile(params.filter, params.tiling, visit_tile);
    } else {
      const auto visit_tile = [&](int row, int col, int batch, int k_blocks, const auto& advance) {
        visit(Tile{row, col, batch, k_blocks}, advance);
      };
      Frame::for_each_tile(params, SingleCta{}, visit_tile);
    }
  }

  __device__ static void produce(const CpAsyncParams& params, const SharedStorage& shared) {
    typename Mainloop::PipelineState state;
    const Slices& slices = params.slices;
    for_each_tile(params, [&](const Tile& tile, const auto& advance) {
      const int matrix = slices.matrix(tile.batch);
      const int first = slices.first(slices.slice(tile.batch, 0));
      const Extent& extent = extent_of(params, tile);
      const TensorRef from_a = tile::from_k<kConfig>(params.a, params.a.stride_col, tile.begin);
      const TensorRef from_b = tile::from_k<kConfig>(params.b, params.b.stride_row, tile.begin);
      typename Mainloop::ProducerA a(from_a, from_a.stride_row, from_a.stride_col, params.a_vector,
                                     tile.row, extent.m, extent.k, matrix);
      typename Mainloop::ProducerB b(from_b, from_b.stride_col, from_b.stride_row, params.b_vector,
                                     tile.col, extent.n, extent.k, matrix);
      a.skip(first);
      b.skip(first);
#pragma unroll 1
      for (int k_block = 0; k_block < tile.k_blocks; ++k_block) {
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
    if constexpr (kConfig.is_grouped())
      tile::clear_groups<kConfig.grouped>(params, blockIdx.x * 4 + threadIdx.x / 32, gridDim.x * 4);
  }

  __device__ static void consume(const CpAsyncParams& params, SharedStorage& shared, int warp) {
    typename Mainloop::PipelineState state;
    typename Mainloop::Accumulators accumulators;
    const int group = threadIdx.x % 32 / 4, inside = threadIdx.x % 4;
    shared.lane_a = Mainloop::LayoutA::offset(Mainloop::warp_row(warp) + group, inside);
    shared.lane_b = Mainloop::LayoutA::kBytes +
                    Mainloop::LayoutB::offset(Mainloop::warp_col(warp) + group, inside);
    for_each_tile(params, [&](const Tile& tile, const auto& advance) {
      const int row = tile.row + Mainloop::warp_row(warp), batch = tile.batch;
      const int col = tile.col + Mainloop::warp_col(warp);
      const Extent& extent = extent_of(params, tile);
      if (params.epilogue.has_terms) {
        for (int i = 0; i < Mainloop::kFragments; ++i)
          tile::prefetch(params.epilogue, tile::window(extent, row + 16 * i, col, batch),
                         Mainloop::kWarpN);
      }
      Mainloop::multiply(shared, state, tile.k_blocks, accumulators);
      if constexpr (!kRoundsToF32)
        tile::store_f64(params.epilogue, extent, row, col, batch, accumulators);
      else if (params.slices.count > 1)
        store_sums(params, row, col, batch, accumulators);
      else
        store_rounded(params, extent, smem_d(shared, warp), row, col, batch, accumulators);
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

  __device__ static void store_rounded(const CpAsyncParams& params, const Extent& extent,
                                       char* smem_d, int row, int col, int batch,
                                       const typename Mainloop::Accumulators& sums) {
    float rounded[Mainloop::kFragments][4 * Mainloop::kBlocks];
#pragma unroll
    for (int i = 0; i < Mainloop::kFragments; ++i)
#pragma unroll
      for (int j = 0; j < 4 * Mainloop::kBlocks; ++j)
        rounded[i][j] = static_cast<float>(sums[i][j]);
    tile::store_fragments<Mainloop::kWarpN, 32, float>(params.epilogue, extent, smem_d, row, col,
                                                       batch, rounded);
  }
};

}  // namespace tcgemm::sm90
