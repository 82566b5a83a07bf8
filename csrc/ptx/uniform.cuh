// Values that are the same in all lanes of a warp.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

// Returns lane 0's `value`, which all lanes of a converged warp have. The compiler then knows that
// they do, and keeps it and what follows from it in uniform registers: one instruction a warp, not
// one a lane. WGMMA descriptors and TMA coordinates are operands in uniform registers.
__device__ inline int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

}  // namespace tcgemm::ptx
