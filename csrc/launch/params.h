// Problem -> the members of Params that all kernels share: operands, scales and epilogue.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::launch {

TensorRef tensor_ref(const Matrix& matrix, std::int64_t rows, std::int64_t cols,
                     std::int64_t batch);

// The scales of a, along m and k, and of b, along n and k; without scales an empty vector (all 1).
ScaleVector scale_of_a(const Problem& problem);
ScaleVector scale_of_b(const Problem& problem);

// `problem` is in the kernel's orientation. The plan has the offsets of the sums in `workspace`.
Epilogue epilogue(const Problem& problem, const Plan& plan, const LaunchConfig& config,
                  void* workspace);

Extent extent(const Problem& problem);
// The slices of k of a kernel that reads tile_k of k at a time.
Slices slices(const Problem& problem, const LaunchConfig& run, int tile_k);
// With `row_major` the index of a tile is its position in row-major order. TileFilter needs that.
Tiling tiling(const Problem& problem, const LaunchConfig& run, bool row_major = false);

}  // namespace tcgemm::launch
