// Scheduler + mainloop + epilogue for sm_80 and everything later: mma.sync and mma.sp fed by
// cp.async.
//
// Grid: a block computes one tile, blockIdx.x of the scheduler. The hardware hands out blocks as
// others end, and where two fit an SM the epilogue of one runs beside the mainloop of the other. A
// persistent loop spills: what it hoists takes registers that the mainloop needs.
//
// Shared memory is the ring, 1024-byte aligned, and then the epilogue's slabs in the same place.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/sm80/mainloop/dense.cuh"
#include "ptx/shared.cuh"
#include "tile/scheduler.cuh"
#include "tile/store.cuh"

namespace tcgemm::sm80 {

template <Kernel kRow>
struct Gemm {
  using Loop = Mainloop<kRow>;
  static_assert(Loop::kWarps * kSlabBytes <= Loop::kRingBytes);
  static_assert(Loop::kRingBytes <= kRow.shared_bytes());

  __device__ static void run(const Sm80Params& params, char* shared) {
    char* slab = shared + threadIdx.x / 32 * kSlabBytes;

    const tile::Tile tile = tile::tile_at(params.tiling, blockIdx.x);
    const int row = tile.m * kRow.tile_m(), col = tile.n * kRow.tile_n();
    typename Loop::Accumulators accumulators;
    Loop::multiply(params, ptx::shared_address(shared), row, col, tile.batch, accumulators);
    __syncthreads();  // the slabs overwrite the ring
    // Units of 32 columns spill beside 128 accumulators, and where ptxas makes f16 products of fp8.
    constexpr int kUnit = Loop::kWarpN == 64 || kRow.arch == Arch::sm89 ? 16 : 32;
    constexpr tile::Rows kRows = kRow.neighbours() ? tile::Rows::neighbours : tile::Rows::apart;
    tile::store_fragments<Loop::kWarpN, kUnit, tile::Value<kRow.accumulator>, kRows>(
        params.epilogue, params.extent, slab, row + Loop::warp_row(), col + Loop::warp_col(),
        tile.batch, accumulators);
  }
};

}  // namespace tcgemm::sm80
