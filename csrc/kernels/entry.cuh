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
template <int kConfigIndex, template <GemmConfig> class Gemm, class Params>
__global__ void __launch_bounds__(kCatalog[kConfigIndex].threads(), 1)
    gemm(const __grid_constant__ Params params) {
  // Swizzles begin at multiples of 1024 bytes, which is where a driver puts it.
  extern __shared__ __align__(1024) char shared[];
  if (ptx::shared_address(shared) % 1024 != 0) __trap();
  constexpr Arch kArch = kCatalog[kConfigIndex].arch;
  if constexpr (kArch == Arch::sm90a ? ptx::kSm90a : kArch != Arch::sm89 || ptx::kArch >= 89)
    Gemm<kCatalog[kConfigIndex]>::run(params, shared);
  else
    __trap();  // compiled for an architecture that cannot run it: fail loudly
}

// The kernel of row kConfigIndex, or nullptr unless it is built and one that serves(kernel) says this file
// compiles.
template <template <GemmConfig> class Gemm, class Params, bool (*serves)(const GemmConfig&),
          int kConfigIndex>
const void* pointer() {
  constexpr GemmConfig config = kCatalog[kConfigIndex];
  if constexpr (built(config) && serves(config))
    return reinterpret_cast<const void*>(&gemm<kConfigIndex, Gemm, Params>);
  else
    return nullptr;
}

// The same for a row that is known at run time. The catalog is longer than templates may nest.
template <template <GemmConfig> class Gemm, class Params, bool (*serves)(const GemmConfig&)>
const void* find(int row) {
  return [&]<std::size_t... kIndices>(std::index_sequence<kIndices...>) {
    const void* const pointers[] = {pointer<Gemm, Params, serves, int(kIndices)>()...};
    return pointers[row];
  }(std::make_index_sequence<kCatalog.size()>{});
}

// The usual choice: an architecture and the dtype of a, which is whole, and dense or sparse.
template <Arch kArch, DType kInput, bool kSparse = false>
constexpr bool serves(const GemmConfig& config) {
  return config.arch == kArch && config.input == kInput && config.terms == 1 &&
         config.sparse == kSparse;
}

}  // namespace tcgemm::kernels
