// Programmatic dependent launch (PTX ISA 9.7.13.13): a kernel may start while the previous kernel
// of the stream still runs, and do its set-up until it needs that kernel's results. GPUs before
// sm_90 do not support it; code for them contains no instruction of it.
#pragma once

#include "ptx/device_arch.cuh"

namespace tcgemm::ptx {

// Waits until the previous kernels are complete and their writes are visible. A thread calls it
// before its first write of global memory, and before its first read of what a kernel may write. In
// every CTA some thread calls it, also where it does not use results of the previous kernel: the
// next kernel relies on that for all earlier kernels.
__device__ inline void wait_for_prerequisites() {
  if constexpr (kArch >= 90) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next kernel start its set-up on multiprocessors with free resources.
__device__ inline void launch_dependents() {
  if constexpr (kArch >= 90) asm volatile("griddepcontrol.launch_dependents;");
}

}  // namespace tcgemm::ptx
