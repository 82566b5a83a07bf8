// The problem in the orientation that suits the tiles of dense.cpp, and the addresses of elements.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace tcgemm::cpu {

struct OrientedProblem {
  Problem problem;
  bool swap_ab = false;  // out^T = b^T a^T; the caller's scale_a is scale_b here
};

// Merges the batch into as few matrices as possible, and makes the rows of out contiguous if its
// rows or its columns are.
OrientedProblem orient(const Problem& problem);

inline void* element(const Matrix& matrix, std::int64_t batch, std::int64_t row,
                     std::int64_t column) {
  const std::int64_t offset =
      batch * matrix.stride_batch + row * matrix.stride_row + column * matrix.stride_col;
  return reinterpret_cast<char*>(matrix.address) + bytes_of(offset, matrix.dtype);
}

// The scale of element (row, column) of the operand.
inline float scale_at(const Operand& scale, std::int64_t batch, std::int64_t row,
                      std::int64_t column) {
  return *static_cast<const float*>(
      element(scale, batch, row >> scale.shift_row, column >> scale.shift_col));
}

}  // namespace tcgemm::cpu
