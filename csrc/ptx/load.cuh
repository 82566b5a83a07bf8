// Loads that the compiler leaves where they stand; those of 16 bytes say how long L2 should keep
// what they read (PTX ISA 9.7.9.8, 9.7.9.18).
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// Policies of `load`, for memory that is read once, which should leave L2 to what is written for
// the next kernel, and for what is read again.
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

// Not past L1: words that two chunks share are asked for twice. Not ld.nc either: what a kernel
// before this one wrote is coherent for plain loads alone.
__device__ inline uint4 load(const void* address, std::uint64_t policy) {
  uint4 word;
  asm volatile("ld.global.L1::evict_first.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(address), "l"(policy));
  return word;
}

__device__ inline float load(const float* address) {
  float word;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(word) : "l"(address));
  return word;
}

}  // namespace tcgemm::ptx
