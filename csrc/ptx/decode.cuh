// Arithmetic on pairs of 16-bit elements in a register, and conversions of 8-bit elements to them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/dtype.h"
#include "ptx/convert.cuh"
#include "ptx/device_arch.cuh"

namespace tcgemm::ptx {

template <DType kType>
struct PairOf;
template <>
struct PairOf<DType::f16> {
  using Type = __half2;
};
template <>
struct PairOf<DType::bf16> {
  using Type = __nv_bfloat162;
};

// Two elements of kType, in the bits of a register.
template <DType kType>
class Pair {
 public:
  using Type = typename PairOf<kType>::Type;

  __device__ explicit Pair(std::uint32_t bits) : bits_(bits) {}
  // The same value twice.
  __device__ explicit Pair(float value) : bits_(pack<kType>(value, value)) {}
  __device__ std::uint32_t bits() const { return bits_; }

  __device__ Pair operator-(Pair other) const { return Pair(__hsub2(pair(), other.pair())); }
  __device__ Pair operator*(Pair other) const { return Pair(__hmul2(pair(), other.pair())); }
  // x * y + z, rounded once.
  __device__ static Pair fma(Pair x, Pair y, Pair z) {
    return Pair(__hfma2(x.pair(), y.pair(), z.pair()));
  }

 private:
  __device__ explicit Pair(Type pair) : bits_(reinterpret_cast<const std::uint32_t&>(pair)) {}
  __device__ Type pair() const { return reinterpret_cast<const Type&>(bits_); }

  std::uint32_t bits_;
};

// x & mask | bits, as one instruction: the compiler makes two of two constants.
__device__ inline std::uint32_t and_or(std::uint32_t x, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(bits));
  return result;
}

// The low two bytes of `bytes`, e4m3, as two f16. Code older than sm_89 moves their bits to the
// places of f16, whose exponents are 8 larger.
__device__ inline std::uint32_t e4m3_as_f16(std::uint32_t bytes) {
  if constexpr (kArch >= 89) {
    std::uint32_t halves;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, low;\n}"
        : "=r"(halves)
        : "r"(bytes));
    return halves;
  } else {
    const std::uint32_t high_bytes = __byte_perm(bytes, 0, 0x1404);
    const std::uint32_t magnitude = high_bytes >> 1 & 0x3f803f80u;
    const std::uint32_t nan = __vcmpeq2(magnitude, 0x3f803f80u) & 0x7fff7fffu;
    const Pair<DType::f16> value(magnitude | (high_bytes & 0x80008000u));
    return (value * Pair<DType::f16>(256.0f)).bits() | nan;
  }
}

// The low two bytes of `bytes`, e4m3, which f16 and bf16 hold exactly.
template <DType kType>
__device__ inline std::uint32_t e4m3_pair(std::uint32_t bytes) {
  const std::uint32_t halves = e4m3_as_f16(bytes);
  if constexpr (kType == DType::f16) return halves;
  const float2 values = unpack_f16(halves);
  return pack<kType>(values.x, values.y);
}

}  // namespace tcgemm::ptx
