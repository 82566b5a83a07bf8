// Approximations of the special function unit (PTX ISA 9.7.3). Subnormals become 0.
#pragma once

namespace tcgemm::ptx {

// 2^x, within 2 ulp.
__device__ inline float exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / x, within 1 ulp. 1 / Inf is 0.
__device__ inline float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace tcgemm::ptx
