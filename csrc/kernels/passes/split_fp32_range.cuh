// The range of a row: how threads find it, and its statistics (core/split_fp32.h).
//
// Magnitudes compare as the bits of f32, which puts Inf and NaN above all others. The smallest
// nonzero magnitude is the minimum of the bits minus 1: zero wraps around to the largest number.
// Threads exchange its complement, so that both extremes are maxima.
#pragma once

#include <cstdint>

#include "core/split_fp32.h"
#include "kernels/passes/row.cuh"

namespace tcgemm::passes {

struct Extremes {
  std::uint32_t largest = 0;
  std::uint32_t smallest = ~0u;  // minus 1: see above

  __device__ void add(std::uint32_t x) {
    const std::uint32_t magnitude = x & 0x7fffffff;
    largest = max(largest, magnitude);
    smallest = __viaddmin_u32(magnitude, ~0u, smallest);
  }
};

// Threads exchange `largest` and the complement of `smallest`.
inline constexpr int kExtremes = 2;

// Computes the maximum of each x[i] over lanes `from`, 2 `from`, ... `to` / 2 apart.
template <int kValues>
__device__ inline void lanes_max(std::uint32_t (&x)[kValues], int from, int to) {
#pragma unroll 1
  for (int distance = from; distance < to; distance *= 2) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) x[i] = max(x[i], __shfl_xor_sync(kAllLanes, x[i], distance));
  }
}

// Returns floor(log2 |x|), also of subnormal numbers.
__device__ inline int exponent(std::uint32_t magnitude) {
  return magnitude >> 23 != 0 ? static_cast<int>(magnitude >> 23) - 127 : -118 - __clz(magnitude);
}

__device__ inline Range range_of(std::uint32_t largest, std::uint32_t complement) {
  if (largest >= 0x7f800000) return range(0, kNotFinite);
  if (largest == 0) return range(0, 0);
  const int high = exponent(largest);
  return range(high, high - exponent(~complement + 1));
}

// Returns the statistics of one row.
__device__ inline std::uint32_t statistics_of(Range range) {
  if (spread(range) == kNotFinite) return row_statistics(0, true);
  return row_statistics(spread(range) > kF16Spread, abs(high(range)) > kMaxInRangeExponent);
}

// Adds the statistics of one row to the statistics of a CTA, in shared memory.
__device__ inline void add_statistics(std::uint32_t& block_statistics, Range range) {
  const std::uint32_t one = statistics_of(range);
  if (wide_range_rows(one) != 0) atomicAdd(&block_statistics, row_statistics(1, false));
  if (out_of_range(one)) atomicOr(&block_statistics, row_statistics(0, true));
}

}  // namespace tcgemm::passes
