// f32 to tf32, to nearest even, as TMA rounds on its way to shared memory: mma.sync leaves open
// what it makes of the lower 13 bits of an operand.
#pragma once

#include <cstdint>

#include "ptx/device_arch.cuh"

namespace tcgemm::ptx {

// Before sm_90 there is no such conversion (cvt.rna takes ties away from zero, in more
// instructions). There 2^-13 of the value is added to the power of two below it, which leaves ten
// bits of mantissa in the sum: exact for every value, subnormal and largest ones too, and three of
// five instructions leave the integer pipe alone, which integer rounding would fill more than the
// tensor cores' time. -0 becomes 0.
__device__ inline std::uint32_t round_tf32(std::uint32_t bits) {
  if constexpr (kArch >= 90) {
    std::uint32_t rounded;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
    return rounded;
  } else {
    const float value = __uint_as_float(bits), power = __uint_as_float(bits & 0xff800000);
    float part = __fsub_rn(__fmaf_rn(value, 0x1p-13f, power), power);
    if (isinf(value)) part = value;  // Inf - Inf
    return __float_as_uint(__fmul_rn(part, 0x1p13f));
  }
}

}  // namespace tcgemm::ptx
