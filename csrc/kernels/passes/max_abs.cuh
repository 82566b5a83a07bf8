// Computes the largest |x| of vectors, and whether all elements of a vector are finite.
//
// With kFinite only finite elements count: x * 0 + x is x where x is finite and NaN elsewhere, and
// fmax ignores NaN. These are two instructions for two 16-bit elements. Otherwise the result is NaN
// if an element is NaN.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "ptx/convert.cuh"

namespace tcgemm::passes {

// The elements in the form that arithmetic instructions read: one f32, or two 16-bit elements.
template <DType kType>
struct Word {
  static_assert(kType == DType::f32 || kType == DType::f16 || kType == DType::bf16);
  using Type = std::conditional_t<kType == DType::f16, __half2, __nv_bfloat162>;

  __device__ static Type pair(const std::uint32_t& word) {
    return reinterpret_cast<const Type&>(word);
  }
  __device__ static std::uint32_t word(const Type& pair) {
    return reinterpret_cast<const std::uint32_t&>(pair);
  }

  // Returns x * 0 + y.
  __device__ static std::uint32_t times_zero_plus(std::uint32_t x, std::uint32_t y) {
    if constexpr (kType == DType::f32)
      return __float_as_uint(__fmaf_rn(__uint_as_float(x), 0.0f, __uint_as_float(y)));
    else
      return word(__hfma2(pair(x), pair(0), pair(y)));
  }
  // NaN if x or |y| is NaN. x has no sign.
  __device__ static std::uint32_t max_abs_or_nan(std::uint32_t x, std::uint32_t y) {
    if constexpr (kType == DType::f32)
      return max(x, y & 0x7fffffffu);
    else
      return word(__hmax2_nan(pair(x), __habs2(pair(y))));
  }
  __device__ static std::uint32_t max_abs(std::uint32_t x, std::uint32_t y) {
    if constexpr (kType == DType::f32)
      return __float_as_uint(fmaxf(__uint_as_float(x), fabsf(__uint_as_float(y))));
    else
      return word(__hmax2(pair(x), __habs2(pair(y))));
  }
};

template <DType kType>
__device__ inline bool all_finite(const uint4& vector) {
  using W = Word<kType>;
  const std::uint32_t zeros = W::times_zero_plus(
      vector.x,
      W::times_zero_plus(vector.y, W::times_zero_plus(vector.z, W::times_zero_plus(vector.w, 0))));
  return (zeros & (kType == DType::f32 ? 0x7fffffffu : 0x7fff7fffu)) == 0;
}

// The larger of two numbers without a sign, in the order of their bits: NaN is above Inf.
__device__ inline float larger(float x, float y) {
  return __uint_as_float(max(__float_as_uint(x), __float_as_uint(y)));
}

template <DType kType, bool kFinite>
class MaxAbs {
 public:
  __device__ void add(const uint4& vector) {
    using W = Word<kType>;
    for (std::uint32_t word : {vector.x, vector.y, vector.z, vector.w}) {
      if constexpr (kFinite)
        max_ = W::max_abs(max_, W::times_zero_plus(word, word));
      else
        max_ = W::max_abs_or_nan(max_, word);
    }
  }

  __device__ float value() const {
    if constexpr (kType == DType::f32) {
      return __uint_as_float(max_);
    } else {
      const float2 pair = ptx::unpack<kType>(max_);
      return larger(pair.x, pair.y);
    }
  }

 private:
  std::uint32_t max_ = 0;
};

}  // namespace tcgemm::passes
