// The one __global__ function of every product kernel, the architecture guard, and the walk over
// the catalog that instantiates the rows of a .cu file.
#pragma once

#include <cstddef>
#include <utility>

#include "catalog.h"
#include "ptx/device_arch.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::kernels {

// A row stands here as its index: nvcc's host stubs cannot spell a structural value, and a profiler
// shows the index, so that a kernel that ran can be found in the catalog. The min-blocks argument
// gives ptxas the register count at entry: without it setmaxnreg is ignored.
template <int kRow, template <Kernel> class Gemm, class Params>
__global__ void __launch_bounds__(kCatalog[kRow].threads(), 1)
    gemm(const __grid_constant__ Params params) {
  // Swizzles begin at multiples of 1024 bytes, which is where a driver puts it.
  extern __shared__ __align__(1024) char shared[];
  if (ptx::shared_address(shared) % 1024 != 0) __trap();
  constexpr Arch kArch = kCatalog[kRow].arch;
  if constexpr (kArch == Arch::sm90a ? ptx::kSm90a : kArch != Arch::sm89 || ptx::kArch >= 89)
    Gemm<kCatalog[kRow]>::run(params, shared);
  else
    __trap();  // compiled for an architecture that cannot run it: fail loudly
}

// The kernel of row kRow, or nullptr unless it is built and one that serves(kernel) says this file
// compiles.
template <template <Kernel> class Gemm, class Params, bool (*serves)(const Kernel&), int kRow>
const void* pointer() {
  constexpr Kernel kernel = kCatalog[kRow];
  if constexpr (built(kernel) && serves(kernel))
    return reinterpret_cast<const void*>(&gemm<kRow, Gemm, Params>);
  else
    return nullptr;
}

// The same for a row that is known at run time. The catalog is longer than templates may nest.
template <template <Kernel> class Gemm, class Params, bool (*serves)(const Kernel&)>
const void* find(int row) {
  return [&]<std::size_t... kRows>(std::index_sequence<kRows...>) {
    const void* const pointers[] = {pointer<Gemm, Params, serves, int(kRows)>()...};
    return pointers[row];
  }(std::make_index_sequence<kCatalog.size()>{});
}

// The usual choice: an architecture and the dtype of a, which is whole, and dense or sparse.
template <Arch kArch, DType kInput, bool kSparse = false>
constexpr bool serves(const Kernel& kernel) {
  return kernel.arch == kArch && kernel.input == kInput && kernel.parts == 1 &&
         kernel.sparse == kSparse;
}

}  // namespace tcgemm::kernels
