// The one __global__ function of every product kernel, the architecture guard, and the walk over
// the catalog that instantiates the rows of a .cu file.
#pragma once

#include <cstddef>

#include "catalog.h"
#include "ptx/device_arch.cuh"

namespace tcgemm::kernels {

// A row stands here as its index: nvcc's host stubs cannot spell a structural value, and a profiler
// shows the index, so that a kernel that ran can be found in the catalog. The min-blocks argument
// gives ptxas the register count at entry: without it setmaxnreg is ignored.
template <int kRow, template <Kernel> class Gemm, class Params>
__global__ void __launch_bounds__(kCatalog[kRow].threads(), 1)
    gemm(const __grid_constant__ Params params) {
  extern __shared__ char shared[];
  if constexpr (kCatalog[kRow].arch != Arch::sm90a || ptx::kSm90a)
    Gemm<kCatalog[kRow]>::run(params, shared);
  else
    __trap();  // compiled for an architecture that cannot run it: fail loudly
}

// The kernel of catalog row `row`, or nullptr unless it is built and one that serves(kernel) says
// this file compiles.
template <template <Kernel> class Gemm, class Params, bool (*serves)(const Kernel&), int kRow = 0>
const void* find(int row) {
  if constexpr (kRow == int(kCatalog.size())) {
    return nullptr;
  } else {
    constexpr Kernel kernel = kCatalog[kRow];
    if constexpr (built(kernel) && serves(kernel)) {
      if (row == kRow) return reinterpret_cast<const void*>(&gemm<kRow, Gemm, Params>);
    }
    return find<Gemm, Params, serves, kRow + 1>(row);
  }
}

// The usual choice: an architecture and the dtype of a.
template <Arch kArch, DType kInput>
constexpr bool serves(const Kernel& kernel) {
  return kernel.arch == kArch && kernel.input == kInput;
}

}  // namespace tcgemm::kernels
