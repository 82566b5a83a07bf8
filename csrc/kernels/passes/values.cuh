// Quantizes 16-byte vectors to 8-bit values, as core/quantize.h defines them.
#pragma once

#include <cstdint>

#include "core/quantize.h"
#include "kernels/passes/max_abs.cuh"
#include "kernels/passes/vector_reader.cuh"
#include "ptx/convert.cuh"

namespace tcgemm::passes {

// Returns the scale of a group whose largest magnitude is `amax`: NaN if that is Inf or NaN.
__device__ inline float scale_of(float amax, DType to) {
  if (!(amax < __uint_as_float(0x7f800000u))) return __uint_as_float(0x7fc00000u);
  return amax == 0.0f ? 1.0f : fmaxf(__fdiv_rn(amax, limit(to)), 0x1p-126f);
}

__device__ inline float inverse(float x) { return __frcp_rn(x); }

// Computes x / divisor, rounded as the IEEE division, in a third of its instructions. The product
// with the rounded reciprocal is off by a few units in the last place, and the exact remainder says
// by how much (Markstein, IBM J. Res. Dev. 34, 1990). One such step gave the right bits for all
// significands of 11 bits over all of 24. Elements of f32 take a second step, which is proven. No
// number may be infinite, and neither the remainder nor the reciprocal subnormal.
template <DType kType>
__device__ inline float quotient(float x, float divisor, float inverse) {
  float q = __fmul_rn(x, inverse);
  // The remainder is computed for -x, so that a quotient of -0 stays -0.
#pragma unroll
  for (int step = 0; step < (kType == DType::f32 ? 2 : 1); ++step)
    q = __fmaf_rn(__fmaf_rn(q, divisor, -x), -inverse, q);
  return q;
}

// Divides each element by the IEEE division, in a loop. It rotates x: a dynamic index means local
// memory.
template <int kCount>
__device__ inline void divide_each(float (&x)[kCount], float divisor) {
#pragma unroll 1
  for (int i = 0; i < kCount; ++i) {
    const float quotient = __fdiv_rn(x[0], divisor);
#pragma unroll
    for (int j = 1; j < kCount; ++j) x[j - 1] = x[j];
    x[kCount - 1] = quotient;
  }
}

// Divides by a scale as the IEEE division.
//
// Inf has no remainder, and a remainder may underflow. With a scale above kTiny it underflows only
// for quotients that round to zero in every 8-bit type. Below kTiny, and for vectors with Inf or
// NaN, __fdiv_rn divides.
//
// With a given scale a quotient may be too large for f32, and then has no remainder either. So x is
// first limited to twice the largest value times the scale, which saturates as well. Scales above
// kHuge, whose reciprocal is subnormal, are left to __fdiv_rn.
template <DType kType, bool kGiven>
struct Divisor {
  static constexpr float kTiny = 0x1p-80f, kHuge = 0x1p100f;

  float scale, inverse;
  float bound;  // of |x|, with a given scale

  __device__ Divisor(float scale, DType to) : Divisor(scale, passes::inverse(scale), to) {}
  __device__ Divisor(float scale, float inverse, DType to)
      : scale(scale), inverse(inverse), bound(2.0f * limit(to) * scale) {}

  template <int kCount>
  __device__ void divide(float (&x)[kCount], bool finite) const {
    if (finite && scale >= kTiny && (!kGiven || scale <= kHuge)) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        x[i] = quotient<kType>(kGiven ? fminf(fmaxf(x[i], -bound), bound) : x[i], scale, inverse);
      return;
    }
    divide_each(x, scale);
  }
};

template <DType kType, int kCount>
__device__ inline void unpack(const uint4& vector, float (&x)[kCount]) {
  const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == DType::f32) {
      x[i] = __uint_as_float(words[i]);
    } else {
      const float2 pair = ptx::unpack<kType>(words[i]);
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
}

// s8 is symmetric, so -Inf becomes -127. NaN passes the comparison and becomes 0.
template <DType kTo, int kCount>
__device__ inline void pack(const float (&x)[kCount], std::uint32_t (&words)[kCount / 4]) {
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    const float* four = x + 4 * i;
    if constexpr (kTo == DType::s8) {
      const auto saturate_low = [](float value) { return value < -127.0f ? -127.0f : value; };
      words[i] = ptx::pack_s8(saturate_low(four[0]), saturate_low(four[1]), saturate_low(four[2]),
                              saturate_low(four[3]));
    } else {
      words[i] = std::uint32_t(ptx::pack_fp8<kTo>(four[0], four[1])) |
                 std::uint32_t(ptx::pack_fp8<kTo>(four[2], four[3])) << 16;
    }
  }
}

// The values of one vector, four per 32-bit word.
template <DType kType>
struct QuantizedVector {
  static constexpr int kElements = kVectorBytes / bytes(kType);

  std::uint32_t words[kElements / 4];

  template <bool kGiven>
  __device__ QuantizedVector(const uint4& vector, const Divisor<kType, kGiven>& divisor, DType to) {
    float x[kElements];
    unpack<kType>(vector, x);
    divisor.divide(x, all_finite<kType>(vector));
    static_assert(are_all({DType::e4m3, DType::e5m2}, is_fp8));
    if (to == DType::e4m3)
      pack<DType::e4m3>(x, words);
    else if (to == DType::e5m2)
      pack<DType::e5m2>(x, words);
    else
      pack<DType::s8>(x, words);
  }

  __device__ void store(char* to) const {
    if constexpr (kElements == 8)
      *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
    else
      *reinterpret_cast<std::uint32_t*>(to) = words[0];
  }

  // Stores elements `first` to `last` - 1; `to` is the address of element 0.
  __device__ void store(char* to, int first, int last) const {
    std::uint32_t low = words[0], high = words[kElements / 4 - 1];
#pragma unroll 1
    for (int i = 0; i < kElements; ++i) {
      if (i >= first && i < last) to[i] = static_cast<char>(low);
      low = __funnelshift_r(low, high, 8);
      high >>= 8;
    }
  }
};

}  // namespace tcgemm::passes
