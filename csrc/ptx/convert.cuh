// Conversions of pairs, rounded to nearest even, low element first.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/dtype.h"

namespace tcgemm::ptx {

template <DType kType>
__device__ inline std::uint32_t pack(float low, float high) {
  static_assert(kType == DType::f16 || kType == DType::bf16);
  if constexpr (kType == DType::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }
}

__device__ inline float2 unpack_f16(std::uint32_t pair) {
  return __half22float2(reinterpret_cast<const __half2&>(pair));
}

__device__ inline float2 unpack_bf16(std::uint32_t pair) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
}

}  // namespace tcgemm::ptx
