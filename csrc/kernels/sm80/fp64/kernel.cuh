// Scheduler + mainloop + epilogue of f64 for sm_80 and later: mma.sync fed by cp.async. As in
// kernels/sm80/kernel.cuh, a CTA computes one tile.
#pragma once

#include "core/params.h"
#include "ptx/shared.cuh"
#include "tile/fp64_epilogue.cuh"
#include "tile/groups.cuh"
#include "tile/scheduler.cuh"

namespace tcgemm::sm80 {

template <GemmConfig kConfig, EpiloguePath kPath, template <GemmConfig> class MainloopOf>
struct Fp64Gemm {
  using Mainloop = MainloopOf<kConfig>;
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
    typename Mainloop::Accumulators accumulators;
    Mainloop::multiply(params, extent, k_begin, ptx::shared_address(memory), row, col, batch,
                       accumulators);
    tile::store_f64(params.epilogue, extent, row + Mainloop::warp_row(), col + Mainloop::warp_col(),
                    batch, accumulators);
  }
};

}  // namespace tcgemm::sm80
