// Conversions of two or four elements, low element first, rounded to nearest even (PTX ISA
// 9.7.9.21), and powers of two.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/dtype.h"
#include "ptx/device_arch.cuh"

namespace tcgemm::ptx {

// 2^exponent. The result must be a normal number.
__device__ inline float power_of_two(int exponent) {
  return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
}

template <DType kType>
__device__ inline std::uint32_t pack(float low, float high) {
  if constexpr (kType == DType::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  } else {
    static_assert(kType == DType::f16);
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }
}

// The same with relu: NaN stays NaN.
template <DType kType>
__device__ inline std::uint32_t pack_relu(float low, float high) {
  static_assert(kType == DType::f16 || kType == DType::bf16);
  std::uint32_t pair;
  if constexpr (kType == DType::bf16)
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

static_assert(are_all({DType::f16, DType::bf16}, is_16bit),
              "at run time a 16-bit type that is not f16 is taken as bf16, and the reverse");

// The same for f16 or bf16, without a branch.
__device__ inline std::uint32_t pack(bool is_f16, float low, float high) {
  std::uint32_t pair;
  asm("{\n"
      ".reg .pred f16;\n"
      "setp.ne.u32 f16, %3, 0;\n"
      "cvt.rn.bf16x2.f32 %0, %1, %2;\n"
      "@f16 cvt.rn.f16x2.f32 %0, %1, %2;\n"
      "}"
      : "=&r"(pair)
      : "f"(high), "f"(low), "r"(std::uint32_t(is_f16)));
  return pair;
}

__device__ inline float2 unpack_f16(std::uint32_t pair) {
  return __half22float2(reinterpret_cast<const __half2&>(pair));
}

__device__ inline float2 unpack_bf16(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

template <DType kType>
__device__ inline float2 unpack(std::uint32_t pair) {
  static_assert(kType == DType::f16 || kType == DType::bf16);
  return kType == DType::f16 ? unpack_f16(pair) : unpack_bf16(pair);
}

// The same for f16 or bf16, without a branch.
__device__ inline float2 unpack(bool is_f16, std::uint32_t pair) {
  float2 values;
  asm("{\n"
      ".reg .pred f16;\n"
      ".reg .b16 low, high;\n"
      "setp.ne.u32 f16, %3, 0;\n"
      "mov.b32 {low, high}, %2;\n"
      "shl.b32 %0, %2, 16;\n"
      "and.b32 %1, %2, 0xffff0000;\n"
      "@f16 cvt.f32.f16 %0, low;\n"
      "@f16 cvt.f32.f16 %1, high;\n"
      "}"
      : "=&f"(values.x), "=&f"(values.y)
      : "r"(pair), "r"(std::uint32_t(is_f16)));
  return values;
}

// Emulates cvt.rn.satfinite for code older than sm_89. Below the smallest normal number an addition
// rounds: the last mantissa bit of the sum is worth one subnormal step.
template <DType kType>
__device__ inline std::uint32_t fp8_bits(float value) {
  constexpr int kMantissa = kType == DType::e4m3 ? 3 : 2;
  constexpr int kBias = kType == DType::e4m3 ? 7 : 15;
  constexpr int kDropped = 23 - kMantissa;
  constexpr std::uint32_t kLargest = kType == DType::e4m3 ? 0x7e : 0x7b;
  constexpr std::uint32_t kSmallestNormal = std::uint32_t(128 - kBias) << 23;
  constexpr std::uint32_t kStep = std::uint32_t(128 - kBias + kDropped) << 23;
  const std::uint32_t sign = __float_as_uint(value) >> 24 & 0x80;
  const std::uint32_t magnitude = __float_as_uint(value) & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7f;
  if (magnitude < kSmallestNormal) {
    const float sum = __uint_as_float(magnitude) + __uint_as_float(kStep);
    return sign | (__float_as_uint(sum) - kStep);
  }
  const std::uint32_t even = magnitude >> kDropped & 1;
  const std::uint32_t rounded = (magnitude + (1u << (kDropped - 1)) - 1 + even) >> kDropped;
  return sign | min(rounded - (std::uint32_t(127 - kBias) << kMantissa), kLargest);
}

// Finite values and Inf saturate; NaN becomes 0x7f, without its sign.
template <DType kType>
__device__ inline std::uint16_t pack_fp8(float low, float high) {
  static_assert(kType == DType::e4m3 || kType == DType::e5m2);
  if constexpr (kArch >= 89) {
    std::uint16_t pair;
    if constexpr (kType == DType::e4m3)
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    else
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
  } else {
    return std::uint16_t(fp8_bits<kType>(low) | fp8_bits<kType>(high) << 8);
  }
}

// Four s8 in the order of the arguments, saturated; NaN becomes 0.
__device__ inline std::uint32_t pack_s8(float x0, float x1, float x2, float x3) {
  std::uint32_t four;
  asm("{\n.reg .b32 high;\n"
      "cvt.pack.sat.s8.s32.b32 high, %4, %3, 0;\n"
      "cvt.pack.sat.s8.s32.b32 %0, %2, %1, high;\n}"
      : "=r"(four)
      : "r"(__float2int_rn(x0)), "r"(__float2int_rn(x1)), "r"(__float2int_rn(x2)),
        "r"(__float2int_rn(x3)));
  return four;
}

// f32 to f64, which is exact, also for subnormals, Inf and NaN. `volatile` keeps it next to the
// load: in a loop the compiler would move it to the next iteration, which needs the value at once.
__device__ inline double widen(float value) {
  double result;
  asm volatile("cvt.f64.f32 %0, %1;" : "=d"(result) : "f"(value));
  return result;
}

}  // namespace tcgemm::ptx
