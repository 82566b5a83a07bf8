// The epilogue of f64 results: scales, c, bias, activation and residual, applied in double to the
// accumulators in registers, and then the store. It is tile/epilogue.cuh with the f64 variants.
//
// The loop over units of 16 rows stays rolled, so that its code exists once. Each iteration moves
// the accumulators of the next rows to the registers of the first ones.
#pragma once

#include "core/params.h"
#include "tile/epilogue.cuh"
#include "tile/store.cuh"

namespace tcgemm::tile {

// Stores 16 * kFragments rows of a warp, from element (row, col) of matrix `batch` on. It
// overwrites the accumulators.
template <int kFragments, int kCount>
__device__ inline void store_f64(const Epilogue& epilogue, const Extent& extent, int row, int col,
                                 int batch, double (&accumulators)[kFragments][kCount]) {
  if (col >= extent.n) return;
#pragma unroll 1
  for (int i = 0; i < kFragments && row < extent.m; ++i, row += 16) {
    double (&v)[kCount] = accumulators[0];
    const Window window = tile::window(extent, row, col, batch);
    if (epilogue.scaled) scale(epilogue, window, v);
    if (epilogue.has_terms) {
      finish(epilogue, window, v);
      requantise(epilogue, window, v);
    }
    store_direct(epilogue, window, v);
#pragma unroll
    for (int fragment = 1; fragment < kFragments; ++fragment)
#pragma unroll
      for (int j = 0; j < kCount; ++j) accumulators[fragment - 1][j] = accumulators[fragment][j];
  }
}

}  // namespace tcgemm::tile
