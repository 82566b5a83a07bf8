// Scheduler + mainloop + epilogue for sm_80 and later: mma.sync and mma.sp fed by cp.async.
// docs/dev/kernels/sm80.md says why no CTA is persistent.
#pragma once

#include "core/params.h"
#include "ptx/shared.cuh"
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
    char* smem_d = memory + threadIdx.x / 32 * kStagingBytes;

    const tile::TileCoord tile = tile::tile_at(params.tiling, blockIdx.x);
    const int row = tile.m * kConfig.tile_m(), col = tile.n * kConfig.tile_n();
    typename Mainloop::Accumulators accumulators;
    Mainloop::multiply(params, ptx::shared_address(memory), row, col, tile.batch, accumulators);
    __syncthreads();  // smem_d overwrites the stages
    // Units of 32 columns spill beside 128 accumulators, and where ptxas emulates FP8 products in
    // f16.
    constexpr bool kWide = Mainloop::kWarpM * Mainloop::kWarpN >= 64 * 64;
    constexpr int kUnit = kWide || kConfig.arch == Arch::sm89 ? 16 : 32;
    constexpr tile::RowOrder kRowOrder =
        kConfig.interleaved_rows() ? tile::RowOrder::interleaved : tile::RowOrder::native;
    tile::store_fragments<Mainloop::kWarpN, kUnit, tile::Value<kConfig.accumulator>, kRowOrder>(
        params.epilogue, params.extent, smem_d, row + Mainloop::warp_row(),
        col + Mainloop::warp_col(), tile.batch, accumulators);
  }
};

}  // namespace tcgemm::sm80
