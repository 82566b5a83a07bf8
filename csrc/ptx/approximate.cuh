// Approximations of the special function unit (PTX ISA 9.7.3). Subnormals become 0.
#pragma once

#include "ptx/device_arch.cuh"

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

// tanh(x). PTX states a relative error of 2^-11. On an H200 it is 2^-16.6, and the error of
// 1 - |tanh(x)| is at most 2.3e-6: 2^25 arguments from -8 to 8. Older GPUs were not measured.
__device__ inline float tanh(float x) {
  float result;
  asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
inline constexpr bool kAccurateTanh = kArch >= 90;

}  // namespace tcgemm::ptx
