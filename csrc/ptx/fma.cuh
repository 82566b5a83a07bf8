// Sums with one rounding that the compiler neither splits nor merges with what is before. With a
// factor of one it would replace __fmaf_rn by an addition, and may merge that with the product that
// computed `addend`, in one kernel and not in another.
#pragma once

namespace tcgemm::ptx {

// factor * x + addend
__device__ __forceinline__ float fma(float factor, float x, float addend) {
  float sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(factor), "f"(x), "f"(addend));
  return sum;
}
__device__ __forceinline__ double fma(double factor, double x, double addend) {
  double sum;
  asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(sum) : "d"(factor), "d"(x), "d"(addend));
  return sum;
}

}  // namespace tcgemm::ptx
