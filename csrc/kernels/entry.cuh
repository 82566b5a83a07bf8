// The __global__ function of every GEMM, the architecture guard, and the walk over the catalog that
// instantiates the rows of one compilation unit.
#pragma once

#include <cstddef>
#include <utility>

#include "catalog.h"
#include "kernels/kernels.h"
#include "ptx/device_arch.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::kernels {

// The template argument is the index of the row, not the row: nvcc's host stubs cannot spell a
// structural value, and a profiler then shows the index, which finds the kernel in the catalog.
// The min-blocks argument gives ptxas the register count at entry; without it ptxas ignores
// setmaxnreg.
template <int kConfigIndex, EpiloguePath kPath,
          template <GemmConfig, EpiloguePath, template <GemmConfig> class> class Gemm,
          template <GemmConfig> class Mainloop, class Params>
__global__ void __launch_bounds__(kCatalog[kConfigIndex].threads(),
                                  kCatalog[kConfigIndex].least_ctas())
    gemm(const __grid_constant__ Params params) {
  // Swizzled tiles start at multiples of 1024 bytes. The driver places dynamic shared memory there.
  extern __shared__ __align__(1024) char shared[];
  if (ptx::shared_address(shared) % 1024 != 0) __trap();
  constexpr Arch kArch = kCatalog[kConfigIndex].arch;
  if constexpr (kArch == Arch::sm90a ? ptx::kSm90a : kArch != Arch::sm89 || ptx::kArch >= 89)
    Gemm<kCatalog[kConfigIndex], kPath, Mainloop>::run(params, shared);
  else
    __trap();  // This architecture cannot run the kernel: fail loudly.
}

// The kernel of row kConfigIndex and kPath, or nullptr unless it is built and belongs to the unit.
template <Unit kUnit, template <GemmConfig, EpiloguePath, template <GemmConfig> class> class Gemm,
          template <GemmConfig> class Mainloop, class Params, int kConfigIndex, EpiloguePath kPath>
const void* pointer() {
  constexpr GemmConfig config = kCatalog[kConfigIndex];
  if constexpr (built(config) && unit(config) == kUnit && config.has_kernel(kPath))
    return reinterpret_cast<const void*>(&gemm<kConfigIndex, kPath, Gemm, Mainloop, Params>);
  else
    return nullptr;
}

// The kernel of a row whose index is known at run time. The catalog is longer than templates may
// nest, so the walk expands one pack.
template <Unit kUnit, template <GemmConfig, EpiloguePath, template <GemmConfig> class> class Gemm,
          template <GemmConfig> class Mainloop, class Params>
const void* find_in(int config_index, EpiloguePath path) {
  return [&]<std::size_t... kIndices>(std::index_sequence<kIndices...>) {
    const void* const pointers[] = {
        pointer<kUnit, Gemm, Mainloop, Params, int(kIndices) / kEpiloguePaths,
                EpiloguePath(kIndices % kEpiloguePaths)>()...};
    return pointers[config_index * kEpiloguePaths + static_cast<int>(path)];
  }(std::make_index_sequence<kCatalog.size() * kEpiloguePaths>{});
}

}  // namespace tcgemm::kernels
