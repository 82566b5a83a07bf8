// The range of a row: how threads find it, and what a note says of it. core/split_fp32.h.
//
// Magnitudes are compared as the bits of f32, which puts Inf and NaN above all others. The smallest
// one that is not zero is the least of the bits less one: zero wraps around to the largest. Between
// threads its complement is passed on, so that both are maxima.
#pragma once

#include <cstdint>

#include "core/split_fp32.h"
#include "kernels/passes/row.cuh"

namespace tcgemm::passes {

struct Extremes {
  std::uint32_t largest = 0;
  std::uint32_t smallest = ~0u;  // less one

  __device__ void add(std::uint32_t x) {
    const std::uint32_t magnitude = x & 0x7fffffff;
    largest = max(largest, magnitude);
    smallest = __viaddmin_u32(magnitude, ~0u, smallest);
  }
};

// What passes between threads: `largest`, and the complement of `smallest`.
inline constexpr int kExtremes = 2;

// Maxima among lanes `from`, 2 `from`, ... up to `to` apart, of all values side by side.
template <int kValues>
__device__ inline void lanes_maximum(std::uint32_t (&x)[kValues], int from, int to) {
#pragma unroll 1
  for (int distance = from; distance < to; distance *= 2) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) x[i] = max(x[i], __shfl_xor_sync(kAllLanes, x[i], distance));
  }
}

// floor(log2 |x|), of subnormal numbers too.
__device__ inline int exponent(std::uint32_t magnitude) {
  return magnitude >> 23 != 0 ? static_cast<int>(magnitude >> 23) - 127 : -118 - __clz(magnitude);
}

__device__ inline Range range_of(std::uint32_t largest, std::uint32_t complement) {
  if (largest >= 0x7f800000) return range(0, kNotFinite);
  if (largest == 0) return range(0, 0);
  const int high = exponent(largest);
  return range(high, high - exponent(~complement + 1));
}

// A note of one row.
__device__ inline std::uint32_t statistics_of(Range range) {
  if (spread(range) == kNotFinite) return row_statistics(0, true);
  return row_statistics(spread(range) > kF16Spread, abs(high(range)) > kMaxInRangeExponent);
}

// Adds it to that of a block.
__device__ inline void add_statistics(std::uint32_t& tally, Range range) {
  const std::uint32_t one = statistics_of(range);
  if (wide_range_rows(one) != 0) atomicAdd(&tally, row_statistics(1, false));
  if (out_of_range(one)) atomicOr(&tally, row_statistics(0, true));
}

}  // namespace tcgemm::passes
