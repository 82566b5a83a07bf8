// Adjacent dimensions of a tensor merged into one, and a tensor as one batch of matrices.
#pragma once

#include <cstdint>

#include "ops/tensor.h"

namespace tcgemm::ops {

struct MergedDim {
  std::int64_t size = 1;
  std::int64_t stride = 0;

  // False if the outer dimension does not continue this one.
  bool merge(std::int64_t outer_size, std::int64_t outer_stride) {
    if (size != 1 && outer_stride != size * stride) return false;
    if (size == 1) stride = outer_stride;
    size *= outer_size;
    return true;
  }
};

// Merges the first `dims` dimensions into `rows`, as far as their strides allow, and the others
// into `batch`; all into `batch` unless `extends_rows`. False if the strides fit no such batch.
inline bool merge_matrices(const View& view, std::int64_t dims, MergedDim& rows, MergedDim& batch,
                           bool extends_rows = true) {
  while (--dims >= 0) {
    const std::int64_t size = view.sizes[dims], stride = view.strides[dims];
    if (size == 1) continue;
    if (extends_rows && batch.size == 1 && rows.merge(size, stride)) continue;
    if (!batch.merge(size, stride)) return false;
  }
  return true;
}

}  // namespace tcgemm::ops
