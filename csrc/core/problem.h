// A Problem describes one batched GEMM with its epilogue, and every operand's layout in memory.
//
//   value = activation(alpha * scale_a * scale_b * ((a - zero_a) @ (b - zero_b)) + beta * c + bias)
//           + residual
//   out = value * scale_out, rounded once;  amax = max |value|
//
//        k            n            n
//     +-----+      +-----+      +-----+
//   m |  a  |    k |  b  |    m | out |     c, bias, residual: m x n; a stride of 0 broadcasts
//     +-----+      +-----+      +-----+
//
// The epilogue computes in the accumulator's type and rounds once, at the end. There are two
// exceptions: with f16 accumulators it computes in f32; with s32 accumulators it computes in f32,
// unless `out` is s32, and then in s32 modulo 2^32.
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

// A batch of matrices. Strides are in elements; a stride of 0 broadcasts. A meta tensor has no
// memory: there `address` is the byte offset in its storage, so that alignment checks still work.
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

// TMA, cp.async and vector loads need addresses that are multiples of 16 bytes.
inline constexpr std::int64_t kVectorBytes = 16;

constexpr bool whole_vectors(std::int64_t elements, DType type) {
  return elements * bytes(type) % kVectorBytes == 0;
}

// Whether rows x cols of the matrix can be read and written in vectors of 16 bytes along rows.
constexpr bool is_vectorizable(const Matrix& matrix, std::int64_t rows, std::int64_t cols,
                               std::int64_t batch) {
  return (matrix.stride_col == 1 || cols == 1) && matrix.address % kVectorBytes == 0 &&
         (rows == 1 || whole_vectors(matrix.stride_row, matrix.dtype)) &&
         (batch == 1 || whole_vectors(matrix.stride_batch, matrix.dtype));
}

// f32 scales of an operand, in the operand's orientation: rows along m and columns along k for a,
// rows along k and columns along n for b. One value scales 1 << shift consecutive elements; with a
// stride of 0 one value scales all.
struct Scale {
  Matrix values;
  int shift_row = 0;
  int shift_col = 0;

  bool operator==(const Scale&) const = default;
};

constexpr Scale transposed(const Scale& scale) {
  return {transposed(scale.values), scale.shift_col, scale.shift_row};
}

// Length of a scale block, in elements.
inline constexpr int kScaleBlock = 128;
inline constexpr int kScaleShift = 7;

// A prepacked f32 operand: 16-bit terms, ranges and statistics. SplitFp32Pass (core/plan.h) has the
// layout.
struct Prepacked {
  std::uintptr_t address = 0;
  int terms = 0;  // kF16Terms or kBf16Terms; 0: not prepacked

  bool operator==(const Prepacked&) const = default;
};

// The metadata of a 2:4 operand (core/sparse.h). The operand's Matrix has the values.
struct SparseOperand {
  std::uintptr_t tiles = 0;   // address of the metadata, reordered for mma.sp and wgmma.sp
  std::int64_t stored_k = 0;  // extent of the values along k

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
  // Input types of the MMA instruction: the dtypes of a and b, except that f32 tensors become tf32
  // with precision "high" and bf16 with "medium".
  DType input_a = DType::f32;
  DType input_b = DType::f32;
  DType accumulator = DType::f32;
  int terms = 1;         // 16-bit terms of f32 operands, set by the planner (core/split_fp32.h)
  bool promote = false;  // fp8: partial sums over 128 of k are added in f32 registers
  Activation activation = Activation::none;
  double alpha = 1.0;
  double beta = 1.0;
  std::optional<Scale> scale_a;
  std::optional<Scale> scale_b;
  std::optional<Matrix> zero_a;     // s32, m x 1: one value (stride 0) or one for each row
  std::optional<Matrix> zero_b;     // s32, 1 x n
  std::optional<Matrix> scale_out;  // f32, one value
  std::optional<Matrix> amax;       // f32, one value, written
  std::optional<Prepacked> prepacked_a;
  std::optional<Prepacked> prepacked_b;
  // At most one operand is sparse, and that one has no batch.
  std::optional<SparseOperand> sparse_a;
  std::optional<SparseOperand> sparse_b;
  // amax already holds the value of other problems of the same call and must not start from 0.
  bool amax_continues = false;

  bool operator==(const Problem&) const = default;

  // Extent along k of an operand in memory: about half of k for a 2:4 operand.
  std::int64_t stored_k_a() const { return sparse_a ? sparse_a->stored_k : k; }
  std::int64_t stored_k_b() const { return sparse_b ? sparse_b->stored_k : k; }
  bool empty() const { return batch == 0 || m == 0 || n == 0; }
  // Whether there is more than alpha and scales between the accumulator and the rounding.
  bool has_epilogue_terms() const {
    return c || bias || residual || activation != Activation::none || zero_a || zero_b ||
           scale_out || amax;
  }
  bool has_default_epilogue() const {
    return alpha == 1.0 && !has_epilogue_terms() && !scale_a && !scale_b;
  }
  // Scales that vary along k are applied in the mainloop; the epilogue applies all others.
  bool block_scaled() const {
    return (scale_a && scale_a->values.stride_col != 0) ||
           (scale_b && scale_b->values.stride_row != 0);
  }
  double flops() const { return 2.0 * double(batch) * double(m) * double(n) * double(k); }
};

// The transposed problem, out^T = b^T a^T: its a is b^T, and its b is a^T (swap AB).
inline Problem transposed(const Problem& problem) {
  Problem result = problem;
  result.m = problem.n;
  result.n = problem.m;
  result.a = transposed(problem.b);
  result.b = transposed(problem.a);
  result.out = transposed(problem.out);
  for (auto operand : {&Problem::c, &Problem::bias, &Problem::residual})
    if (result.*operand) result.*operand = transposed(*(problem.*operand));
  std::swap(result.input_a, result.input_b);
  std::swap(result.prepacked_a, result.prepacked_b);
  std::swap(result.sparse_a, result.sparse_b);
  result.scale_a.reset();
  result.scale_b.reset();
  if (problem.scale_b) result.scale_a = transposed(*problem.scale_b);
  if (problem.scale_a) result.scale_b = transposed(*problem.scale_a);
  result.zero_a.reset();
  result.zero_b.reset();
  if (problem.zero_b) result.zero_a = transposed(*problem.zero_b);
  if (problem.zero_a) result.zero_b = transposed(*problem.zero_a);
  return result;
}

}  // namespace tcgemm
