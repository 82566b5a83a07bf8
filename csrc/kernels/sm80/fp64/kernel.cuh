// Scheduler + mainloop + epilogue of f64 for sm_80 and later: mma.sync fed by cp.async. As in
// kernels/sm80/kernel.cuh, a CTA computes one tile.
#pragma once

#include "core/params.h"
#include "ptx/shared.cuh"
#include "tile/fp64_epilogue.cuh"
#include "tile/scheduler.cuh"

namespace tcgemm::sm80 {

template <GemmConfig kConfig, EpiloguePath kPath, template <GemmConfig> class MainloopOf>
struct Fp64Gemm {
  using Mainloop = MainloopOf<kConfig>;
  static_assert(Mainloop::kStagesBytes <= kConfig.shared_bytes());

  __device__ static void run(const CpAsyncParams& params, char* memory) {
    const tile::TileCoord tile = tile::tile_at(params.tiling, blockIdx.x);
    const int row = tile.m * kConfig.tile_m(), col = tile.n * kConfig.tile_n();
    typename Mainloop::Accumulators accumulators;
    Mainloop::multiply(params, ptx::shared_address(memory), row, col, tile.batch, accumulators);
    tile::store_f64(params.epilogue, params.extent, row + Mainloop::warp_row(),
                    col + Mainloop::warp_col(), tile.batch, accumulators);
  }
};

}  // namespace tcgemm::sm80
