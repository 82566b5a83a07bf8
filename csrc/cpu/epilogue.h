// What happens to a row of sums before it is rounded: activation(alpha * sum + beta * c + bias) +
// residual. One translation unit, plain x86-64, no fused multiply-add: the same bits everywhere.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "cpu/kernels.h"

namespace tcgemm::cpu {

// Where an element lies.
inline void* element(const Matrix& matrix, std::int64_t batch, std::int64_t row,
                     std::int64_t column) {
  const std::int64_t offset =
      batch * matrix.stride_batch + row * matrix.stride_row + column * matrix.stride_col;
  return reinterpret_cast<char*>(matrix.address) + offset * bytes(matrix.dtype);
}

// n elements of row `row` of batch `batch`, from `column`, in place. `scratch` has room for n.
template <class T>
void apply_epilogue(const Problem& problem, Load<T> load, std::int64_t batch, std::int64_t row,
                    std::int64_t column, std::int64_t n, T* sums, T* scratch);

}  // namespace tcgemm::cpu
