// Global loads that the compiler does not move. Loads of 16 bytes take an L2 cache policy (PTX ISA
// 9.7.9.8, 9.7.9.18).
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// L2 cache policies of `load`. evict_first is for memory that is read once: it leaves L2 to what is
// written for the next kernel. evict_normal is for memory that is read again.
__device__ inline std::uint64_t evict_first() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ inline std::uint64_t evict_normal() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// The load goes through L1, since a vector that two chunks share is loaded twice. It is not ld.nc:
// with dependent launch the previous kernel may still write while this one runs, and only ld.global
// is coherent then.
__device__ inline uint4 load(const void* address, std::uint64_t policy) {
  uint4 vector;
  asm volatile("ld.global.L1::evict_first.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
               : "l"(address), "l"(policy));
  return vector;
}

__device__ inline float load(const float* address) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
}

}  // namespace tcgemm::ptx
