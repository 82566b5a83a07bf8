// Clears the k of a stage that belong to other groups: the first and the last k-block of a group
// have them, where groups divide k.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/dtype.h"
#include "kernels/sm90/producer.cuh"
#include "ptx/fence.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::sm90 {

// Writes zeros to the k outside of [first, end) of `rows` rows of m or n in shared memory, as a
// warpgroup. No value there may get into the sums, not even a NaN.
template <GemmConfig kConfig, Major kMajor>
__device__ inline void clear_k(std::uint32_t shared, int rows, int first, int end) {
  constexpr int kVector = 128 / bits(kConfig.input), kWordElements = kVector / 4;
  const int thread = threadIdx.x % 128;
  if constexpr (kMajor == Major::MN) {
    // A k is a row of 128 bytes in each box.
    using Producer = TmaProducer<kConfig>;
    for (int box = 0; box < rows / Producer::kBoxMn; ++box)
      for (int i = thread; i < 8 * kConfig.tile_k(); i += 128)
        if (i / 8 < first || i / 8 >= end)
          ptx::store_shared_vector(shared + box * Producer::kBoxBytes + i * 16, {});
  } else {
    for (int row = thread; row < rows; row += 128) {
      for (int chunk = 0; chunk < 8; ++chunk) {
        const int k = chunk * kVector;
        if (k >= first && k + kVector <= end) continue;
        const std::uint32_t address = shared + row * 128 + ((chunk ^ (row & 7)) << 4);  // swizzle
        uint4 vector = ptx::load_shared_vector(address);
        std::uint32_t* const words = &vector.x;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int low = k + i * kWordElements, high = low + kWordElements - 1;
          const auto keeps = [&](int at) { return at >= first && at < end; };
          if (kWordElements == 1)
            words[i] = keeps(low) ? words[i] : 0;
          else
            words[i] &= (keeps(low) ? 0xffff : 0) | (keeps(high) ? 0xffff0000 : 0);
        }
        ptx::store_shared_vector(address, vector);
      }
    }
  }
}

// The same for all of a stage that a warpgroup reads. Each warpgroup clears all of b, so that it
// waits for itself alone. barrier: a named barrier of the warpgroup.
template <GemmConfig kConfig>
__device__ inline void clear_stage(std::uint32_t stage, std::uint32_t offset_a, int first, int end,
                                   int barrier) {
  clear_k<kConfig, major_a(kConfig.layout)>(stage + offset_a, kConfig.m64_blocks * 64, first, end);
  clear_k<kConfig, major_b(kConfig.layout)>(stage + TmaProducer<kConfig>::kBytesA,
                                            kConfig.loaded_n(), first, end);
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(barrier, 128);
}

}  // namespace tcgemm::sm90
