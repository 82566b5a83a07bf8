// mbarrier: arrival counts and transaction bytes (PTX ISA 9.7.13.15). Addresses are 32-bit
// addresses of shared memory.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

__device__ inline void mbarrier_init(std::uint32_t barrier, std::uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

// The memory of the barrier may then have other data.
__device__ inline void mbarrier_invalidate(std::uint32_t barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Arrives once and adds the number of bytes that TMA will write in this CTA to the pending
// transaction count.
__device__ inline void mbarrier_arrive_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Arrives on a barrier at an address that remote_address has returned. Relaxed order is enough: the
// consumers only read, and they have waited for wgmma. With .release every k-step has a
// MEMBAR.ALL.GPU, and the kernel reaches 0.70 of the rate.
__device__ inline void mbarrier_arrive_remote(std::uint32_t remote) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote)
               : "memory");
}

__device__ inline bool mbarrier_try_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// try_wait returns false after a time limit of the hardware, so it is repeated.
__device__ inline void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

// Arrives on a barrier of this CTA. Threads that wait on it see this thread's earlier writes.
__device__ inline void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

}  // namespace tcgemm::ptx
