// The arithmetic of the epilogue.
#include "cpu/epilogue.h"

#include <algorithm>

namespace tcgemm::cpu {
namespace {

// The order of two rounded multiplications changes the bits: the caller's scale_a comes first.
template <class T>
void apply_scales(const OrientedProblem& oriented, const Segment& s, T* values) {
  const Problem& p = oriented.problem;
  const auto by_row = [&] {
    if (!p.has(Slot::scale_a)) return;
    const T factor = scale_at(p[Slot::scale_a], s.batch, s.row, 0);
    for (std::int64_t j = 0; j < s.n; ++j) values[j] *= factor;
  };
  const auto by_column = [&] {
    if (!p.has(Slot::scale_b)) return;
    for (std::int64_t j = 0; j < s.n; ++j) {
      values[j] *= T(scale_at(p[Slot::scale_b], s.batch, 0, s.column + j));
    }
  };
  if (!oriented.swap_ab) by_row();
  by_column();
  if (oriented.swap_ab) by_row();
}

}  // namespace

template <class T>
void apply_epilogue(const OrientedProblem& oriented, const Kernels<T>& kernels, const Segment& s,
                    T* values, T* scratch, MagnitudeBits<T>& amax_bits) {
  const Problem& p = oriented.problem;
  const auto load_term = [&](Slot slot) {
    if (!p.has(slot)) return false;
    const Matrix& matrix = p[slot];
    kernels.load(matrix.dtype, element(matrix, s.batch, s.row, s.column), matrix.stride_col, s.n,
                 scratch);
    return true;
  };
  const T alpha = static_cast<T>(p.alpha);
  const T beta = static_cast<T>(p.beta);
  if (alpha != T(1)) {
    for (std::int64_t j = 0; j < s.n; ++j) values[j] *= alpha;
  }
  if (!p.block_scaled()) apply_scales(oriented, s, values);
  if (beta != T(0) && load_term(Slot::c)) {
    for (std::int64_t j = 0; j < s.n; ++j) scratch[j] *= beta;
    for (std::int64_t j = 0; j < s.n; ++j) values[j] += scratch[j];
  }
  if (load_term(Slot::bias)) {
    for (std::int64_t j = 0; j < s.n; ++j) values[j] += scratch[j];
  }
  if (p.has(Slot::z)) {
    const Matrix& z = p[Slot::z];
    kernels.store(z.dtype, values, s.n, element(z, s.batch, s.row, s.column), z.stride_col);
  }
  with_activation(p.activation, [&]<Activation kActivation>() {
    for (std::int64_t j = 0; j < s.n; ++j)
      values[j] = Formula<kActivation, Exact<T>>::forward(values[j]);
  });
  if (load_term(Slot::residual)) {
    for (std::int64_t j = 0; j < s.n; ++j) values[j] += scratch[j];
  }
  if (p.has(Slot::amax)) {
    MagnitudeBits<T> row_amax = 0;
    for (std::int64_t j = 0; j < s.n; ++j) row_amax = std::max(row_amax, magnitude_bits(values[j]));
    amax_bits = std::max(amax_bits, row_amax);
  }
  if (p.has(Slot::scale_out)) {
    const T factor = *reinterpret_cast<const float*>(p[Slot::scale_out].address);
    for (std::int64_t j = 0; j < s.n; ++j) values[j] *= factor;
  }
}

template void apply_epilogue<float>(const OrientedProblem&, const Kernels<float>&, const Segment&,
                                    float*, float*, std::int32_t&);
template void apply_epilogue<double>(const OrientedProblem&, const Kernels<double>&, const Segment&,
                                     double*, double*, std::int64_t&);

void store_integers(const Problem& p, const Segment& s, std::uint32_t* values) {
  const auto add = [&](Slot slot, std::uint32_t factor) {
    if (!p.has(slot) || factor == 0) return;
    const Matrix& matrix = p[slot];
    const auto* from = static_cast<const std::uint32_t*>(element(matrix, s.batch, s.row, s.column));
    for (std::int64_t j = 0; j < s.n; ++j) values[j] += factor * from[j * matrix.stride_col];
  };
  const auto integer = [](double x) { return static_cast<std::uint32_t>(std::int64_t(x)); };
  const std::uint32_t alpha = integer(p.alpha);
  for (std::int64_t j = 0; j < s.n; ++j) values[j] *= alpha;
  add(Slot::c, integer(p.beta));
  add(Slot::bias, 1);
  if (p.activation == Activation::relu) {
    for (std::int64_t j = 0; j < s.n; ++j) values[j] = std::max(std::int32_t(values[j]), 0);
  }
  add(Slot::residual, 1);
  const Matrix& out = p[Slot::out];
  auto* to = static_cast<std::uint32_t*>(element(out, s.batch, s.row, s.column));
  for (std::int64_t j = 0; j < s.n; ++j) to[j * out.stride_col] = values[j];
}

}  // namespace tcgemm::cpu
