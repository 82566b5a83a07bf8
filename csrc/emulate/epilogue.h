// The epilogue of the kernels up to the residual, with their roundings.
#pragma once

#include <cstdint>

namespace tcgemm::emulate {

// All matrices are contiguous and of the accumulator's type, batch x m x n. A null pointer is a
// term that is absent.
struct Epilogue {
  std::int32_t is_f64;
  std::int32_t swap_ab;  // the kernel computes the transpose, so its rows are columns here
  std::int32_t relu;
  double alpha, beta;
  std::int64_t batch, m, n;
  void* values;
  const float* scale_a;  // batch x m; `one_scale_a`: one value, not one for each row
  const float* scale_b;  // batch x n
  std::int32_t one_scale_a, one_scale_b;
  const void* c;
  const void* bias;
  const void* residual;
};

void apply(const Epilogue& epilogue);

}  // namespace tcgemm::emulate
