// Programmatic dependent launch (PTX ISA 9.7.13.13): a kernel may start while the one before it in
// the stream still runs, and sets itself up until it needs that one's results. Nothing before sm_90
// does that, and code for it holds no trace.
#pragma once

#include "ptx/device_arch.cuh"

namespace tcgemm::ptx {

// Until the kernels before are complete and their writes visible. Every thread of every block runs
// it, before its first read of global memory and its first write: a chain of kernels relies on each
// link.
__device__ inline void wait_for_prerequisites() {
  if constexpr (kArch >= 90) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next kernel start its own set-up where multiprocessors are free.
__device__ inline void launch_dependents() {
  if constexpr (kArch >= 90) asm volatile("griddepcontrol.launch_dependents;");
}

}  // namespace tcgemm::ptx
