// The values of pairs of codes of a table of 16, in shared memory. Every lane has a copy in a bank
// of its own, so that no lookup has a conflict.
#pragma once

#include <cstdint>

#include "ptx/convert.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::tile {

// Word 32 i + lane of the memory has the values of codes i % 16 and i / 16, low and high, as two
// elements of kType. All threads of the CTA call this, and synchronise.
template <DType kType>
__device__ inline void fill_code_pairs(const float* table, std::uint32_t shared) {
  const int lane = threadIdx.x % 32;
  const float value = table[lane % 16];
  for (int i = threadIdx.x / 32; i < 256; i += blockDim.x / 32) {
    const float low = __shfl_sync(~0u, value, i % 16), high = __shfl_sync(~0u, value, i / 16);
    ptx::store_shared_b32(shared + (32 * i + lane) * 4, ptx::pack<kType>(low, high));
  }
  __syncthreads();
}

}  // namespace tcgemm::tile
