// Named barriers of a CTA (PTX ISA 9.7.13.1), numbers 0 to 15. __syncthreads uses number 0.
#pragma once

namespace tcgemm::ptx {

// Waits until `threads` threads have synchronised or arrived; the number is a multiple of 32.
__device__ inline void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ inline void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace tcgemm::ptx
