// The values of pairs of codes of a table of 16, in shared memory. Every lane has a copy in a bank
// of its own, so that no lookup has a conflict.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::tile {

// Word 32 i + lane of the memory has the values of codes i % 16 and i / 16, low and high, as two
// elements of kType. `warps` warps call this, each with its index. They must synchronise before
// they read the memory.
template <DType kType>
__device__ inline void fill_code_pairs(const float* table, std::uint32_t shared, int warp,
                                       int warps) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t value = ptx::pack<kType>(table[lane % 16], 0.0f);
  const std::uint32_t own = shared + lane * 4;
  for (int high = warp; high < 16; high += warps) {
    const std::uint32_t high_value = __shfl_sync(~0u, value, high) << 16;
#pragma unroll
    for (int low = 0; low < 16; ++low)
      ptx::store_shared_b32(own + (16 * high + low) * 128,
                            __shfl_sync(~0u, value, low) | high_value);
  }
}

// The same for all warps of a CTA, which then see the memory. Only table4 has a table.
template <DType kType, int kWarps>
__device__ inline void fill_code_pairs(const PackedParams& packed, std::uint32_t shared) {
  if (packed.format != WeightFormat::table4) return;
  fill_code_pairs<kType>(packed.table, shared, threadIdx.x / 32, kWarps);
  __syncthreads();
}

}  // namespace tcgemm::tile
