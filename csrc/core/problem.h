// What is asked: one batch of products, with every operand as it lies in memory.
//
//   out = activation(alpha * (a @ b) + beta * c + bias) + residual
//
//        k            n            n
//     +-----+      +-----+      +-----+
//   m |  a  |    k |  b  |    m | out |     c, bias, residual: m x n, stride 0 where they broadcast
//     +-----+      +-----+      +-----+
//
// Everything between the accumulator and `out` is computed in the accumulator's type (f32 for an
// f16 accumulator), with one rounding at the end.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "core/layout.h"

namespace tcgemm {

enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

inline constexpr int kActivations = 5;

constexpr const char* name(Activation activation) {
  constexpr const char* names[kActivations] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
  return names[static_cast<int>(activation)];
}

// A batch of matrices. Strides are in elements; a stride of 0 broadcasts. For a tensor without
// storage (meta) `address` is its byte offset in the storage, so that its alignment still means
// something.
struct Matrix {
  std::uintptr_t address = 0;
  DType dtype = DType::f32;
  std::int64_t stride_row = 0;
  std::int64_t stride_col = 0;
  std::int64_t stride_batch = 0;
};

constexpr Matrix transposed(Matrix matrix) {
  const std::int64_t row = matrix.stride_row;
  matrix.stride_row = matrix.stride_col;
  matrix.stride_col = row;
  return matrix;
}

// Accesses wider than an element, TMA and cp.async alike, want 16-byte addresses.
inline constexpr std::int64_t kWordBytes = 16;

constexpr bool whole_words(std::int64_t elements, DType type) {
  return elements * bytes(type) % kWordBytes == 0;
}

// Can rows x cols of the matrix be read and written in 16-byte words along its rows?
constexpr bool wide(const Matrix& matrix, std::int64_t rows, std::int64_t cols,
                    std::int64_t batch) {
  return (matrix.stride_col == 1 || cols == 1) && matrix.address % kWordBytes == 0 &&
         (rows == 1 || whole_words(matrix.stride_row, matrix.dtype)) &&
         (batch == 1 || whole_words(matrix.stride_batch, matrix.dtype));
}

struct Problem {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Matrix a;    // m x k
  Matrix b;    // k x n
  Matrix out;  // m x n
  std::optional<Matrix> c;
  std::optional<Matrix> bias;
  std::optional<Matrix> residual;
  DType accumulator = DType::f32;
  Activation activation = Activation::none;
  double alpha = 1.0;
  double beta = 1.0;

  bool empty() const { return batch == 0 || m == 0 || n == 0; }
  // Does anything besides alpha come between the accumulator and the rounding?
  bool options() const { return c || bias || residual || activation != Activation::none; }
  bool plain() const { return alpha == 1.0 && !options(); }
  double flops() const { return 2.0 * double(batch) * double(m) * double(n) * double(k); }
};

// The same product seen from the other side: out^T = b^T a^T.
inline Problem transposed(const Problem& problem) {
  Problem other = problem;
  other.m = problem.n;
  other.n = problem.m;
  other.a = transposed(problem.b);
  other.b = transposed(problem.a);
  other.out = transposed(problem.out);
  for (auto option : {&Problem::c, &Problem::bias, &Problem::residual})
    if (other.*option) other.*option = transposed(*(problem.*option));
  return other;
}

}  // namespace tcgemm
