// The largest |x| of the finite elements of chunks, and whether all of a chunk are finite.
//
// x * 0 + x is x where x is finite and NaN elsewhere, and a maximum leaves NaN out: two
// instructions for two 16-bit elements.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "ptx/convert.cuh"

namespace tcgemm::passes {

// Elements as the arithmetic of their type takes them, one f32 or two of 16 bits.
template <DType kType>
struct Packed {
  using Type = std::conditional_t<kType == DType::f16, __half2, __nv_bfloat162>;

  __device__ static Type pair(const std::uint32_t& word) {
    return reinterpret_cast<const Type&>(word);
  }
  __device__ static std::uint32_t word(const Type& pair) {
    return reinterpret_cast<const std::uint32_t&>(pair);
  }

  // x * 0 + y
  __device__ static std::uint32_t zero_times(std::uint32_t x, std::uint32_t y) {
    if constexpr (kType == DType::f32)
      return __float_as_uint(__fmaf_rn(__uint_as_float(x), 0.0f, __uint_as_float(y)));
    else
      return word(__hfma2(pair(x), pair(0), pair(y)));
  }
  __device__ static std::uint32_t larger(std::uint32_t x, std::uint32_t y) {
    if constexpr (kType == DType::f32)
      return __float_as_uint(fmaxf(__uint_as_float(x), fabsf(__uint_as_float(y))));
    else
      return word(__hmax2(pair(x), __habs2(pair(y))));
  }
};

template <DType kType>
__device__ inline bool all_finite(const uint4& chunk) {
  using P = Packed<kType>;
  const std::uint32_t zeros = P::zero_times(
      chunk.x, P::zero_times(chunk.y, P::zero_times(chunk.z, P::zero_times(chunk.w, 0))));
  return (zeros & (kType == DType::f32 ? 0x7fffffffu : 0x7fff7fffu)) == 0;
}

template <DType kType>
class Largest {
 public:
  __device__ void add(const uint4& chunk) {
    for (std::uint32_t word : {chunk.x, chunk.y, chunk.z, chunk.w})
      most_ = Packed<kType>::larger(most_, Packed<kType>::zero_times(word, word));
  }

  __device__ float value() const {
    if constexpr (kType == DType::f32) return __uint_as_float(most_);
    const float2 pair = kType == DType::f16 ? ptx::unpack_f16(most_) : ptx::unpack_bf16(most_);
    return fmaxf(pair.x, pair.y);
  }

 private:
  std::uint32_t most_ = 0;
};

}  // namespace tcgemm::passes
