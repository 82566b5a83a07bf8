// Prefetches into L1 and L2 (PTX ISA 9.7.9.16). They are hints; no instruction waits for them.
#pragma once

namespace tcgemm::ptx {

__device__ inline void prefetch_l1(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

__device__ inline void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace tcgemm::ptx
