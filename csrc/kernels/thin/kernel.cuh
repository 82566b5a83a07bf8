// The kernels for products of many rows, with few columns and a short k: the bytes of a and of the
// result bound them. Operands by plain loads, products by mma.sync.
// docs/dev/kernels/thin.md has the measurements.
#pragma once

#include "catalog.h"
#include "core/params.h"
#include "ptx/dependent.cuh"
#include "ptx/shared.cuh"
#include "tile/store.cuh"

namespace tcgemm::thin {

// A CTA reads all of b once, and then has tiles of rows, one after the other:
//
//   b -> shared memory, as fragments | rows of a -> registers -> mma.sync -> the result | the next
//
// Its warps do not wait for each other. There are so many of them on a multiprocessor that their
// loads and stores overlap, and no warp loads ahead.
template <GemmConfig kConfig, EpiloguePath kPath, template <GemmConfig> class MainloopOf>
struct Thin {
  using Mainloop = MainloopOf<kConfig>;
  static constexpr int kStagings = kConfig.threads() / 32 * kStagingBytes;
  static_assert(kStagings + Mainloop::kSharedBytes <= kConfig.shared_bytes());

  __device__ static void run(const CpAsyncParams& params, char* memory) {
    // The next kernel may load a constant at once, which a kernel before this one has written.
    ptx::wait_for_prerequisites();
    ptx::launch_dependents();
    const int warp = threadIdx.x / 32;
    char* const smem_d = memory + warp * kStagingBytes;
    const Mainloop mainloop(params, ptx::shared_address(memory) + kStagings);
    mainloop.load_b();
    __syncthreads();
#pragma unroll 1
    for (std::int64_t tile = blockIdx.x; tile < params.tiling.total; tile += gridDim.x) {
      const int row = static_cast<int>(tile) * kConfig.tile_m() + warp * 16;
      if (row >= params.extent.m) continue;
      float sums[1][Mainloop::kSums];
      mainloop.multiply(row, sums[0]);
      if (mainloop.store(row, sums[0])) continue;
      tile::store_fragments<kConfig.n, 16, float>(params.epilogue, params.extent, smem_d, row, 0, 0,
                                                  sums);
    }
  }
};

}  // namespace tcgemm::thin
