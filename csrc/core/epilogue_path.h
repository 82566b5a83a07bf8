// The epilogues between which the planner chooses.
#pragma once

#include <cstdint>

namespace tcgemm {

// How much arithmetic stands between the accumulators and the store. A row of the catalog has a
// kernel for each path that its config supports (GemmConfig::has_kernel): one kernel with all of
// them spills registers, and its instructions miss the caches. The planner chooses the path.
enum class EpiloguePath : std::uint8_t {
  direct,   // none: the accumulators are the result. A part of the rolled kernel
  plain,    // scales of 8-bit operands, a bias and relu: tile/unrolled.cuh
  fused,    // the same, any activation, and c or the residual: tile/unrolled.cuh
  rolled,   // every term, 16 rows x some columns at a time: tile/store.cuh
  columns,  // a column-major result, and every term but zero points: tile/transposed.cuh
  slices,   // sums of slices of k, which the grid adds, and every term: kernels/sm90/grid_sum.cuh
};

inline constexpr int kEpiloguePaths = 6;

constexpr const char* name(EpiloguePath path) {
  constexpr const char* names[kEpiloguePaths] = {"direct", "plain",   "fused",
                                                 "rolled", "columns", "slices"};
  return names[static_cast<int>(path)];
}

// The path whose kernel computes `path`.
constexpr EpiloguePath kernel_path(EpiloguePath path) {
  return path == EpiloguePath::direct ? EpiloguePath::rolled : path;
}

}  // namespace tcgemm
