// The same products in the form that suits the tiles of dense.cpp, and where their elements lie.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace tcgemm::cpu {

struct Arranged {
  Problem problem;
  bool transposed = false;  // out^T = b^T a^T: the caller's scale_a is scale_b here
};

// As few matrices as possible, with rows of out that are contiguous where it has any such thing.
Arranged arrange(const Problem& problem);

inline void* element(const Matrix& matrix, std::int64_t batch, std::int64_t row,
                     std::int64_t column) {
  const std::int64_t offset =
      batch * matrix.stride_batch + row * matrix.stride_row + column * matrix.stride_col;
  return reinterpret_cast<char*>(matrix.address) + offset * bytes(matrix.dtype);
}

// Of element (row, column) of the operand.
inline float multiplier(const Scale& scale, std::int64_t batch, std::int64_t row,
                        std::int64_t column) {
  return *static_cast<const float*>(
      element(scale.values, batch, row >> scale.shift_row, column >> scale.shift_col));
}

}  // namespace tcgemm::cpu
