// The epilogue's arithmetic and the definition of each activation.
#include "cpu/epilogue.h"

#include <cmath>
#include <optional>

namespace tcgemm::cpu {
namespace {

template <class T>
T activated(Activation activation, T x) {
  switch (activation) {
    case Activation::relu:
      return x < 0 ? T(0) : x;  // NaN stays
    case Activation::gelu:
      // erfc, not 1 + erf: no cancellation for negative x.
      return T(0.5) * x * std::erfc(x * T(-0.70710678118654752440));
    case Activation::gelu_tanh: {
      // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), again without cancellation.
      const T u = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
      return x / (T(1) + std::exp(T(-2) * u));
    }
    case Activation::silu:
      return x / (T(1) + std::exp(-x));
    default:
      return x;
  }
}

}  // namespace

template <class T>
void apply_epilogue(const Problem& problem, Load<T> load, std::int64_t batch, std::int64_t row,
                    std::int64_t column, std::int64_t n, T* sums, T* scratch) {
  const auto loaded = [&](const std::optional<Matrix>& matrix) {
    if (!matrix) return false;
    load(matrix->dtype, element(*matrix, batch, row, column), matrix->stride_col, n, scratch);
    return true;
  };
  const T alpha = static_cast<T>(problem.alpha);
  const T beta = static_cast<T>(problem.beta);
  if (alpha != T(1)) {
    for (std::int64_t j = 0; j < n; ++j) sums[j] *= alpha;
  }
  if (beta != T(0) && loaded(problem.c)) {
    for (std::int64_t j = 0; j < n; ++j) scratch[j] *= beta;
    for (std::int64_t j = 0; j < n; ++j) sums[j] += scratch[j];
  }
  if (loaded(problem.bias)) {
    for (std::int64_t j = 0; j < n; ++j) sums[j] += scratch[j];
  }
  if (problem.activation != Activation::none) {
    for (std::int64_t j = 0; j < n; ++j) sums[j] = activated(problem.activation, sums[j]);
  }
  if (loaded(problem.residual)) {
    for (std::int64_t j = 0; j < n; ++j) sums[j] += scratch[j];
  }
}

template void apply_epilogue<float>(const Problem&, Load<float>, std::int64_t, std::int64_t,
                                    std::int64_t, std::int64_t, float*, float*);
template void apply_epilogue<double>(const Problem&, Load<double>, std::int64_t, std::int64_t,
                                     std::int64_t, std::int64_t, double*, double*);

}  // namespace tcgemm::cpu
