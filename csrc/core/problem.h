// What is asked: one batch of products, with every operand as it lies in memory.
//
//   value = activation(alpha * scale_a * scale_b * ((a - zero_a) @ (b - zero_b)) + beta * c + bias)
//           + residual
//   out = value * scale_out, rounded once;  amax = max |value|
//
//        k            n            n
//     +-----+      +-----+      +-----+
//   m |  a  |    k |  b  |    m | out |     c, bias, residual: m x n, stride 0 where they broadcast
//     +-----+      +-----+      +-----+
//
// Everything between the accumulator and `out` is computed in the accumulator's type, with one
// rounding at the end: in f32 for f16 accumulators, and for s32 ones too unless `out` is s32, which
// is computed in s32 modulo 2^32.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

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

  bool operator==(const Matrix&) const = default;
};

constexpr Matrix transposed(Matrix matrix) {
  const std::int64_t row = matrix.stride_row;
  matrix.stride_row = matrix.stride_col;
  matrix.stride_col = row;
  return matrix;
}

// Accesses wider than an element, TMA and cp.async alike, want 16-byte addresses.
inline constexpr std::int64_t kVectorBytes = 16;

constexpr bool whole_vectors(std::int64_t elements, DType type) {
  return elements * bytes(type) % kVectorBytes == 0;
}

// Can rows x cols of the matrix be read and written in 16-byte words along its rows?
constexpr bool is_vectorizable(const Matrix& matrix, std::int64_t rows, std::int64_t cols,
                               std::int64_t batch) {
  return (matrix.stride_col == 1 || cols == 1) && matrix.address % kVectorBytes == 0 &&
         (rows == 1 || whole_vectors(matrix.stride_row, matrix.dtype)) &&
         (batch == 1 || whole_vectors(matrix.stride_batch, matrix.dtype));
}

// Is a result written by TMA, and in boxes whose lines are parts of what?
enum class TmaStore : std::uint8_t { none, rows, columns };

// f32 multipliers of an operand's elements, in the shape of the operand: for a, rows count along m
// and columns along k, for b rows count along k and columns along n. One value serves 1 << shift
// neighbours; stride 0: one serves all.
struct Scale {
  Matrix values;
  int shift_row = 0;
  int shift_col = 0;

  bool operator==(const Scale&) const = default;
};

constexpr Scale transposed(const Scale& scale) {
  return {transposed(scale.values), scale.shift_col, scale.shift_row};
}

// Blocks of scales are 128 long.
inline constexpr int kScaleBlock = 128;
inline constexpr int kScaleShift = 7;

// The blob of an f32 operand that was made before: 16-bit parts and what belongs to them (plan.h).
struct Prepacked {
  std::uintptr_t address = 0;
  int terms = 0;  // kF16Terms or kBf16Terms; 0: nothing was made

  bool operator==(const Prepacked&) const = default;
};

// Of an operand that is sparse along k (core/sparse.h), whose Matrix has its values: so many of a
// row, and the metadata in the order in which tensor cores take it.
struct SparseOperand {
  std::uintptr_t tiles = 0;
  std::int64_t stored_k = 0;

  bool operator==(const SparseOperand&) const = default;
};

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
  // What the tensor cores multiply: the operands' dtypes, but tf32 or bf16 for f32 tensors whose
  // precision is "high" or "medium".
  DType input_a = DType::f32;
  DType input_b = DType::f32;
  DType accumulator = DType::f32;
  int terms = 1;         // 16-bit ones of f32 operands: the planner's choice (core/split_fp32.h)
  bool promote = false;  // fp8: partial sums of 128 of k are added in f32 registers
  Activation activation = Activation::none;
  double alpha = 1.0;
  double beta = 1.0;
  std::optional<Scale> scale_a;
  std::optional<Scale> scale_b;
  std::optional<Matrix> zero_a;     // s32, m x 1: one value (stride 0) or one a row
  std::optional<Matrix> zero_b;     // s32, 1 x n
  std::optional<Matrix> scale_out;  // f32, one value
  std::optional<Matrix> amax;       // f32, one value, written
  std::optional<Prepacked> prepacked_a;
  std::optional<Prepacked> prepacked_b;
  std::optional<SparseOperand> sparse_a;  // a has no batch then; at most one of both
  std::optional<SparseOperand> sparse_b;
  bool amax_continues = false;  // it holds that of other products, which count as well

  bool operator==(const Problem&) const = default;

  // Of the operands in memory.
  std::int64_t stored_k_a() const { return sparse_a ? sparse_a->stored_k : k; }
  std::int64_t stored_k_b() const { return sparse_b ? sparse_b->stored_k : k; }
  bool empty() const { return batch == 0 || m == 0 || n == 0; }
  // Does anything besides alpha and scales come between the accumulator and the rounding?
  bool has_epilogue_terms() const {
    return c || bias || residual || activation != Activation::none || zero_a || zero_b ||
           scale_out || amax;
  }
  bool has_default_epilogue() const {
    return alpha == 1.0 && !has_epilogue_terms() && !scale_a && !scale_b;
  }
  // Scales that change along k belong into the mainloop, others into the epilogue.
  bool block_scaled() const {
    return (scale_a && scale_a->values.stride_col != 0) ||
           (scale_b && scale_b->values.stride_row != 0);
  }
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
  std::swap(other.input_a, other.input_b);
  std::swap(other.prepacked_a, other.prepacked_b);
  std::swap(other.sparse_a, other.sparse_b);
  other.scale_a.reset();
  other.scale_b.reset();
  if (problem.scale_b) other.scale_a = transposed(*problem.scale_b);
  if (problem.scale_a) other.scale_b = transposed(*problem.scale_a);
  other.zero_a.reset();
  other.zero_b.reset();
  if (problem.zero_b) other.zero_a = transposed(*problem.zero_b);
  if (problem.zero_a) other.zero_b = transposed(*problem.zero_a);
  return other;
}

}  // namespace tcgemm
