// The epilogue's fast path: no options, a 16-bit result that TMA can write. A warp packs its 16
// rows 64 columns at a time with stmatrix into its 2 KB and sends them off as one box; edges are
// TMA's affair.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/fence.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "tile/fragment.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::tile {

inline constexpr int kBoxColumns = 64;
inline constexpr int kBoxRows = 16;

template <DType kOut>
__device__ inline std::uint32_t packed(const float* fragment, int block, int half) {
  const float2 two = pair(fragment, block, half);
  return ptx::pack<kOut>(two.x, two.y);
}

template <DType kOut>
__device__ inline std::uint32_t packed(const std::uint32_t* fragment, int block, int half) {
  if constexpr (kOut == DType::f16) return fragment[2 * block + half];
  const float2 two = pair(fragment, block, half);
  return ptx::pack<kOut>(two.x, two.y);
}

template <DType kOut, class Fragment>
__device__ inline void pack_box(std::uint32_t slab, const Fragment* fragment, int first_block) {
  const int lane = threadIdx.x % 32;
  // Matrices of one stmatrix: rows 0-7 and 8-15 of 8 columns, then of the next 8.
  const int row = lane % 16, chunk = lane / 16;
#pragma unroll
  for (int i = 0; i < kBoxColumns / 16; ++i) {
    const int block = first_block + 2 * i;
    ptx::stmatrix_x4(slab + swizzle128(row, 2 * i + chunk), packed<kOut>(fragment, block, 0),
                     packed<kOut>(fragment, block, 1), packed<kOut>(fragment, block + 1, 0),
                     packed<kOut>(fragment, block + 1, 1));
  }
}

// As store_fragment (epilogue.cuh). The last box may still be read from `slab` on return: the next
// call waits for it, and the end of the kernel does.
template <int kColumns, class Fragment>
__device__ inline void store_fragment_tma(const TensorMap* map, DType out, char* slab,
                                          const Fragment* fragment, int row, int col, int batch) {
  const std::uint32_t address = ptx::shared_address(slab);
#pragma unroll
  for (int box = 0; box < kColumns / kBoxColumns; ++box) {
    if (threadIdx.x % 32 == 0) ptx::tma_store_wait_read();
    __syncwarp();
    if (out == DType::bf16)
      pack_box<DType::bf16>(address, fragment, box * (kBoxColumns / 8));
    else
      pack_box<DType::f16>(address, fragment, box * (kBoxColumns / 8));
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::tma_store(map, address, col + box * kBoxColumns, row, batch);
  }
}

}  // namespace tcgemm::tile
