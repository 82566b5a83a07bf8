// f32 to tf32, rounded to nearest even, as TMA does. mma.sync needs it: PTX leaves undefined how
// mma.sync uses the lower 13 bits of an operand.
#pragma once

#include <cstdint>

#include "ptx/device_arch.cuh"

namespace tcgemm::ptx {

// Before sm_90 there is no such conversion: cvt.rna rounds ties away from zero, in more
// instructions. Older code adds 2^-13 of the value to the power of two at or below the value, so
// that ten bits of mantissa are left in the sum. This is correct for every value, also subnormals
// and the largest ones. Three of the five instructions do not use the integer pipe; integer
// rounding would keep that pipe busy for longer than the tensor cores compute. -0 becomes 0.
__device__ inline std::uint32_t round_tf32(std::uint32_t bits) {
  if constexpr (kArch >= 90) {
    std::uint32_t rounded;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
    return rounded;
  } else {
    const float value = __uint_as_float(bits), power = __uint_as_float(bits & 0xff800000);
    float scaled = __fsub_rn(__fmaf_rn(value, 0x1p-13f, power), power);
    if (isinf(value)) scaled = value;  // the subtraction is Inf - Inf
    return __float_as_uint(__fmul_rn(scaled, 0x1p13f));
  }
}

}  // namespace tcgemm::ptx
