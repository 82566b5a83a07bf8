// Values that are the same in all lanes of a warp.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// Returns lane 0's `value`, which all lanes of a converged warp have. The compiler then knows that
// they do, and keeps it and what follows from it in uniform registers: one instruction a warp, not
// one a lane. WGMMA descriptors and TMA coordinates are operands in uniform registers.
__device__ inline int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// Returns `value`, of which the compiler then knows nothing: it does not compute what follows from
// it ahead of a loop, which would take registers.
__device__ inline std::uint32_t opaque(std::uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Returns the pointer. The compiler does not know where it comes from: it keeps it in registers and
// does not compute it again in a loop.
template <class T>
__device__ inline const T* in_register(const T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

}  // namespace tcgemm::ptx
