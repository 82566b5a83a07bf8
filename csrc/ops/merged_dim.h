// Adjacent dimensions of a tensor merged into one.
#pragma once

#include <cstdint>

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

}  // namespace tcgemm::ops
