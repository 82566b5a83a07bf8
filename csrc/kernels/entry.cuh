// The __global__ function of every GEMM, the architecture guard, and the walk over the catalog that
// instantiates the rows of one compilation unit.
#pragma once

#include <array>
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

// A kernel of the catalog.
struct Kernel {
  int config_index = 0;
  EpiloguePath path{};
};

constexpr bool is_in(Unit unit, const GemmConfig& config, EpiloguePath path) {
  return kernels::unit(config, path) == unit && config.has_kernel(path) && built(config);
}

// The kernels that a unit compiles. They are found once, and not by an instance of a template for
// each kernel of the catalog: that took the host compiler 5 s a unit.
template <Unit kUnit>
constexpr auto kernels_of() {
  constexpr auto for_each = [](const auto& use) {
    for (int row = 0; row < int(kCatalog.size()); ++row)
      for (int path = 0; path < kEpiloguePaths; ++path)
        if (is_in(kUnit, kCatalog[row], EpiloguePath(path))) use(Kernel{row, EpiloguePath(path)});
  };
  constexpr std::size_t kCount = [&] {
    std::size_t count = 0;
    for_each([&](Kernel) { ++count; });
    return count;
  }();
  std::array<Kernel, kCount> kernels{};
  std::size_t index = 0;
  for_each([&](Kernel kernel) { kernels[index++] = kernel; });
  return kernels;
}

// The kernel of a row whose index is known at run time, or nullptr unless the unit compiles it.
template <Unit kUnit, template <GemmConfig, EpiloguePath, template <GemmConfig> class> class Gemm,
          template <GemmConfig> class Mainloop, class Params>
const void* find_in(int config_index, EpiloguePath path) {
  static constexpr auto kKernels = kernels_of<kUnit>();
  const void* kernel = nullptr;
  [&]<std::size_t... kIndices>(std::index_sequence<kIndices...>) {
    (((kKernels[kIndices].config_index == config_index && kKernels[kIndices].path == path)
          ? void(kernel = reinterpret_cast<const void*>(
                     &gemm<kKernels[kIndices].config_index, kKernels[kIndices].path, Gemm, Mainloop,
                           Params>))
          : void()),
     ...);
  }(std::make_index_sequence<kKernels.size()>{});
  return kernel;
}

}  // namespace tcgemm::kernels
