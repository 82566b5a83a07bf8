// Proxy fences, and setmaxnreg for the register budget of a warpgroup.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// Makes this thread's generic-proxy writes to shared memory visible to TMA and wgmma. A barrier
// must follow before another thread issues these.
__device__ inline void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// All warps of the warpgroup must execute setmaxnreg (PTX ISA 9.7.19.5).
template <int kRegisters>
__device__ inline void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ inline void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace tcgemm::ptx
