// 16-byte loads of memory that is read once: evicted first from both caches, they leave L2 to what
// is written for the next kernel (PTX ISA 9.7.9.8, 9.7.9.18).
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// For load_once; one a thread will do.
__device__ inline std::uint64_t evict_first() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Not past L1: words that two chunks share are asked for twice. Not ld.nc either: what a kernel
// before this one wrote is coherent for plain loads alone.
__device__ inline uint4 load_once(const void* address, std::uint64_t policy) {
  uint4 word;
  asm volatile("ld.global.L1::evict_first.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(address), "l"(policy));
  return word;
}

}  // namespace tcgemm::ptx
