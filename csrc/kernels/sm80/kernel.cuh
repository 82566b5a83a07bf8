// Scheduler + mainloop + epilogue for sm_80 and later: mma.sync and mma.sp fed by cp.async.
// docs/dev/kernels/sm80.md says why no CTA is persistent.
#pragma once

#include "core/params.h"
#include "ptx/shared.cuh"
#include "tile/groups.cuh"
#include "tile/scheduler.cuh"
#include "tile/store.cuh"

namespace tcgemm::sm80 {

// A CTA computes one tile, number blockIdx.x of the raster order. The hardware starts CTAs as
// others end; where two fit an SM, the epilogue of one overlaps the mainloop of the other.
//
//   shared memory:  pipeline stages, 1024-byte aligned; smem_d of the epilogue reuses them
template <GemmConfig kConfig, EpiloguePath kPath, template <GemmConfig> class MainloopOf>
struct Gemm {
  using Mainloop = MainloopOf<kConfig>;
  static_assert(Mainloop::kWarps * kStagingBytes <= Mainloop::kStagesBytes);
  static_assert(Mainloop::kStagesBytes <= kConfig.shared_bytes());

  __device__ static void run(const CpAsyncParams& params, char* memory) {
    if constexpr (kConfig.is_grouped()) {
      tile::TileOfGroup<kConfig> tile;
      if (!tile.find(params, memory)) return;
      compute(params, tile.extent, tile.k_begin, memory, tile.row, tile.col, tile.group);
    } else {
      const tile::TileCoord tile = tile::tile_at(params.tiling, blockIdx.x);
      compute(params, params.extent, 0, memory, tile.m * kConfig.tile_m(),
              tile.n * kConfig.tile_n(), tile.batch);
    }
  }

  // extent: of the group of a grouped product. k_begin: its first k.
  __device__ __forceinline__ static void compute(const CpAsyncParams& params, const Extent& extent,
                                                 int k_begin, char* memory, int row, int col,
                                                 int batch) {
    char* smem_d = memory + threadIdx.x / 32 * kStagingBytes;
    typename Mainloop::Accumulators accumulators;
    Mainloop::multiply(params, extent, k_begin, ptx::shared_address(memory), row, col, batch,
                       accumulators);
    __syncthreads();  // smem_d overwrites the stages
    // Units of 32 columns spill beside 128 accumulators, and where ptxas emulates FP8 products in
    // f16.
    constexpr bool kWide = Mainloop::kWarpM * Mainloop::kWarpN >= 64 * 64;
    constexpr int kUnit = kWide || kConfig.arch == Arch::sm89 ? 16 : 32;
    constexpr tile::RowOrder kRowOrder =
        kConfig.interleaved_rows() ? tile::RowOrder::interleaved : tile::RowOrder::native;
    tile::store_fragments<Mainloop::kWarpN, kUnit, tile::Value<kConfig.accumulator>, kRowOrder>(
        params.epilogue, extent, smem_d, row + Mainloop::warp_row(), col + Mainloop::warp_col(),
        batch, accumulators);
  }
};

}  // namespace tcgemm::sm80
