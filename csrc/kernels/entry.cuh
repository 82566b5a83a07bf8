// The __global__ function of every GEMM, the architecture guard, and the instances of one unit
// (kernels/units.h). Only the files instances.cu include it: the build compiles each of them once
// for every unit of its architecture.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "catalog.h"
#include "core/params.h"
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
  static_assert(kArch == Arch::sm80 || kArch == Arch::sm89 || kArch == Arch::sm90a);
  if constexpr (kArch == Arch::sm90a ? ptx::kSm90a : kArch != Arch::sm89 || ptx::kArch >= 89)
    Gemm<kCatalog[kConfigIndex], kPath, Mainloop>::run(params, shared);
  else
    __trap();  // This architecture cannot run the kernel: fail loudly.
}

// What follows differs between units, so it has internal linkage: the linker would keep one of
// several functions of a name.
namespace {

struct Kernel {
  int config_index;
  EpiloguePath path;
};

// The kernels of the unit that is compiled, in the words of list_units.cpp: "12,13". A compiler
// takes as long to find them as to read all headers.
constexpr std::string_view kIndices = TCGEMM_UNIT_KERNELS;
constexpr auto kKernels = [] {
  std::array<Kernel, std::ranges::count(kIndices, ',') + 1> kernels{};
  int number = 0, index = 0;
  for (const char letter : kIndices) {
    index = letter == ',' ? 0 : 10 * index + letter - '0';
    number += letter == ',';
    kernels[number] = {index / kEpiloguePaths, EpiloguePath(index % kEpiloguePaths)};
  }
  return kernels;
}();

// Fills in the functions of the unit's kernels.
template <template <GemmConfig, EpiloguePath, template <GemmConfig> class> class Gemm,
          template <GemmConfig> class Mainloop>
bool fill_in() {
  [&]<std::size_t... kNumbers>(std::index_sequence<kNumbers...>) {
    ((functions[kKernels[kNumbers].config_index][int(kKernels[kNumbers].path)] =
          reinterpret_cast<const void*>(
              &gemm<kKernels[kNumbers].config_index, kKernels[kNumbers].path, Gemm, Mainloop,
                    std::conditional_t<kCatalog[kKernels[kNumbers].config_index].uses_tma(),
                                       TmaParams, CpAsyncParams>>)),
     ...);
  }(std::make_index_sequence<kKernels.size()>{});
  return true;
}

}  // namespace
}  // namespace tcgemm::kernels
