// A Problem describes one batched GEMM with its epilogue, and every operand's layout in memory.
#pragma once

#include <cstdint>
#include <utility>

#include "core/activation.h"
#include "core/dtype.h"
#include "core/layout.h"
#include "core/operands.h"
#include "core/packed_weight.h"

namespace tcgemm {

// A batch of matrices. Strides are in elements; a stride of 0 broadcasts. Elements of a sub-byte
// type have stride 1 along k, and the other strides are whole bytes.
//
// A meta tensor has no memory: there `address` is the byte offset in its storage, so that alignment
// checks still work.
struct Matrix {
  std::uintptr_t address = 0;
  DType dtype = DType::f32;
  std::int64_t stride_row = 0;
  std::int64_t stride_col = 0;
  std::int64_t stride_batch = 0;

  bool operator==(const Matrix&) const = default;
};

// Are columns contiguous, and rows not?
constexpr bool is_column_major(const Matrix& matrix) {
  return matrix.stride_row == 1 && matrix.stride_col != 1;
}

constexpr Matrix transposed(Matrix matrix) {
  const std::int64_t row = matrix.stride_row;
  matrix.stride_row = matrix.stride_col;
  matrix.stride_col = row;
  return matrix;
}

// A sub-byte matrix as the bytes that hold it, because kernels copy bytes; any other matrix as it
// is. Its extent along k is stored_extent(k).
constexpr Matrix in_bytes(const Matrix& matrix) {
  if (!is_subbyte(matrix.dtype)) return matrix;
  const auto stride = [&](std::int64_t elements) { return bytes_of(elements, matrix.dtype); };
  return {matrix.address, DType::u8, stride(matrix.stride_row), stride(matrix.stride_col),
          stride(matrix.stride_batch)};
}

// TMA, cp.async and vector loads need addresses that are multiples of 16 bytes.
inline constexpr std::int64_t kVectorBytes = 16;

constexpr bool whole_vectors(std::int64_t elements, DType type) {
  return elements * bits(type) % (8 * kVectorBytes) == 0;
}

// True if rows x cols of the matrix can be read and written in vectors of 16 bytes along rows.
constexpr bool is_vectorizable(const Matrix& matrix, std::int64_t rows, std::int64_t cols,
                               std::int64_t batch) {
  return (matrix.stride_col == 1 || cols == 1) && matrix.address % kVectorBytes == 0 &&
         (rows == 1 || whole_vectors(matrix.stride_row, matrix.dtype)) &&
         (batch == 1 || whole_vectors(matrix.stride_batch, matrix.dtype));
}

static_assert(bytes_of(7, DType::f16) == 14 && bytes_of(7, DType::s4) == 4);
static_assert(bytes_of(16, DType::b1) == 2 && bytes_of(17, DType::b1) == 3);
static_assert(whole_vectors(32, DType::u4) && !whole_vectors(16, DType::u4));
static_assert(whole_vectors(128, DType::b1) && !whole_vectors(64, DType::b1));
static_assert(is_vectorizable({16, DType::s4, 64, 1, 0}, 8, 33, 1));
static_assert(!is_vectorizable({16, DType::s4, 48, 1, 0}, 8, 33, 1));
static_assert(in_bytes({16, DType::s4, 64, 1, 640}) == Matrix{16, DType::u8, 32, 1, 320});
static_assert(in_bytes({16, DType::b1, 1, 64, 0}) == Matrix{16, DType::u8, 1, 8, 0});

// A tensor of the call. Scales have the operand's orientation: rows along m and columns along k for
// a, rows along k and columns along n for b. One value scales 1 << shift consecutive elements; with
// a stride of 0 one value scales all. Opaque bytes have an address alone.
struct Operand : Matrix {
  int shift_row = 0;
  int shift_col = 0;

  bool operator==(const Operand&) const = default;
};

constexpr Operand transposed(const Operand& operand) {
  return {transposed(static_cast<const Matrix&>(operand)), operand.shift_col, operand.shift_row};
}

// The tensors of a problem, by slot. A tensor that is not given has no meaning.
class Operands {
 public:
  constexpr Operand& operator[](Slot slot) { return operands_[slot]; }
  constexpr const Operand& operator[](Slot slot) const { return operands_[slot]; }

  constexpr SlotSet given() const { return given_; }
  constexpr void set(Slot slot, const Operand& operand) {
    operands_[slot] = operand;
    given_.insert(slot);
  }
  constexpr void set(Slot slot, const Matrix& matrix) { set(slot, Operand{matrix}); }
  constexpr void reset(Slot slot) { given_.erase(slot); }

  constexpr bool operator==(const Operands& other) const {
    if (given_ != other.given_) return false;
    for (const Slot slot : given_)
      if (operands_[slot] != other.operands_[slot]) return false;
    return true;
  }

 private:
  PerSlot<Operand> operands_;
  SlotSet given_{Slot::a, Slot::b, Slot::out};
};

// Length of a scale block, in elements.
inline constexpr int kScaleBlock = 128;
inline constexpr int kScaleShift = 7;

// A prepared f32 operand: 16-bit terms, ranges and statistics. SplitFp32Pass (core/plan.h) has the
// layout.
struct Prepared {
  std::uintptr_t address = 0;
  int terms = 0;  // kF16Terms or kBf16Terms; 0: not prepared

  bool operator==(const Prepared&) const = default;
};

// The operand that the kernel before the product does not write: a layer's weight. The product may
// load it while that kernel runs.
enum class ConstantOperand : std::uint8_t { none, a, b };

constexpr ConstantOperand transposed(ConstantOperand operand) {
  switch (operand) {
    case ConstantOperand::a: return ConstantOperand::b;
    case ConstantOperand::b: return ConstantOperand::a;
    case ConstantOperand::none: break;
  }
  return ConstantOperand::none;
}

// The number that a product of b1 operands counts for each row of a and column of b. pm1 reads the
// bits 0 and 1 as -1 and 1, and adds the products. Kernels count the pairs of ones, as and_ does;
// with pa and pb, the ones of the row and of the column, xor is pa + pb - 2 and, and pm1 is k - 2
// xor.
enum class BinaryOperation : std::uint8_t { and_, xor_, pm1 };

inline constexpr int kBinaryOperations = 3;

constexpr const char* name(BinaryOperation operation) {
  constexpr const char* names[kBinaryOperations] = {"and", "xor", "pm1"};
  return names[static_cast<int>(operation)];
}

// The factors in `pairs` * and + `ones` * (pa + pb) + `all` * k.
struct BinaryFactors {
  std::int32_t pairs, ones, all;
};

constexpr BinaryFactors factors(BinaryOperation operation) {
  switch (operation) {
    case BinaryOperation::xor_: return {-2, 1, 0};
    case BinaryOperation::pm1: return {4, -2, 1};
    case BinaryOperation::and_: break;
  }
  return {1, 0, 0};
}

// The operation:
//
//   z     = alpha * scale_a * scale_b * ((a - zero_a) @ (b - zero_b)) + beta * c + bias
//   value = activation(z) + residual
//   out   = value * scale_out, rounded once;  amax = max |value|;  z is rounded once as well
//
//        k            n            n
//     +-----+      +-----+      +-----+
//   m |  a  |    k |  b  |    m | out |     c, bias, residual: m x n; a stride of 0 broadcasts
//     +-----+      +-----+      +-----+
//
// The epilogue computes in the accumulator's type and rounds once, at the end. There are two
// exceptions: with f16 accumulators it computes in f32; with s32 accumulators it computes in f32,
// unless `out` is s32, and then in s32 modulo 2^32.
struct Problem {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Operands operands;
  // Input types of the MMA instruction: the dtypes of a and b, except that f32 tensors become tf32
  // with precision "high" and bf16 with "medium".
  DType input_a = DType::f32;
  DType input_b = DType::f32;
  DType accumulator = DType::f32;
  // Set by the planner (core/split_fp32.h): 16-bit terms of f32 operands; f32 operands become two
  // TF32 terms in the kernel.
  int terms = 1;
  bool tf32x2 = false;
  bool promote = false;  // fp8: partial sums over 128 of k are added in f32 registers
  Activation activation = Activation::none;
  double alpha = 1.0;
  double beta = 1.0;
  int prepared_terms = 0;  // of the prepared operand: kF16Terms or kBf16Terms
  // f32: planned as if b were prepared, so that calls with and without its terms have equal bits.
  bool as_prepared = false;
  // Nothing that decides the bits of a row depends on the number of rows: n, k and the dtype decide
  // the slices of k, f32 is multiplied as f64, fast fp8 sums are never promoted, and the factors of
  // a row have one order.
  bool batch_invariant = false;
  // A batch-invariant product has one slice of k. It is for the gradient of a weight, whose k are
  // rows: zeros after the last row do not change it.
  bool one_slice = false;
  ConstantOperand constant = ConstantOperand::none;  // the planner ignores it
  // Extent along k of the values of the sparse operand. At most one operand is sparse, and that one
  // has no batch. Its metadata is reordered for mma.sp and wgmma.sp.
  std::int64_t sparse_k = 0;
  PackedWeight packed;  // of packed_a or packed_b
  // amax already holds the value of other problems of the same call and must not start from 0.
  bool amax_continues = false;
  BinaryOperation binary = BinaryOperation::and_;  // of b1 operands
  // The dimension that the groups of a grouped product divide; `one`: there are no groups. Group g
  // of `batch` groups has the indices [offs[g - 1], offs[g]) of m, n or k, and matrix g of every
  // tensor that has a batch. An index of m or n that is in no group has the result 0.
  Axis grouped = Axis::one;

  bool operator==(const Problem&) const = default;

  Operand& operator[](Slot slot) { return operands[slot]; }
  const Operand& operator[](Slot slot) const { return operands[slot]; }
  bool has(Slot slot) const { return operands.given().contains(slot); }
  bool has_any(SlotSet slots) const { return !(operands.given() & slots).empty(); }
  void set(Slot slot, const Matrix& matrix) { operands.set(slot, matrix); }
  void set(Slot slot, const Operand& operand) { operands.set(slot, operand); }
  void reset(Slot slot) { operands.reset(slot); }

  bool has_packed_weight() const { return has_any({Slot::packed_a, Slot::packed_b}); }
  bool is_sparse() const { return has_any({Slot::sparse_a, Slot::sparse_b}); }
  // Extent along k of an operand in memory: about half of k for a 2:4 operand.
  std::int64_t stored_k_a() const { return has(Slot::sparse_a) ? sparse_k : k; }
  std::int64_t stored_k_b() const { return has(Slot::sparse_b) ? sparse_k : k; }
  // The terms of an operand, if they are prepared. `slot`: terms_a or terms_b.
  Prepared prepared(Slot slot) const {
    return has(slot) ? Prepared{operands[slot].address, prepared_terms} : Prepared{};
  }
  bool empty() const { return batch == 0 || m == 0 || n == 0; }
  // The ones of the rows of a and of the columns of b are added to the accumulator.
  bool adds_ones() const { return binary != BinaryOperation::and_; }
  // True if there is more than alpha and scales between the accumulator and the rounding.
  bool has_epilogue_terms() const {
    return has_any(kEpilogueTerms) || activation != Activation::none || adds_ones();
  }
  bool has_default_epilogue() const {
    return alpha == 1.0 && !has_epilogue_terms() && !has_any(kOperandScales);
  }
  // Scales that vary along k are applied in the mainloop; the epilogue applies all others.
  bool block_scaled() const {
    return (has(Slot::scale_a) && operands[Slot::scale_a].stride_col != 0) ||
           (has(Slot::scale_b) && operands[Slot::scale_b].stride_row != 0);
  }
  bool is_grouped() const { return grouped != Axis::one; }
  double flops() const {
    return 2.0 * (is_grouped() ? 1 : double(batch)) * double(m) * double(n) * double(k);
  }
};

// The two problems that write `out` and `z` of a problem that has both.
inline Problem without_z(Problem problem) {
  problem.reset(Slot::z);
  return problem;
}

inline Problem only_z(Problem problem) {
  problem.set(Slot::out, problem[Slot::z]);
  for (const Slot slot : {Slot::z, Slot::residual, Slot::scale_out, Slot::amax})
    problem.reset(slot);
  problem.activation = Activation::none;
  return problem;
}

// The most slices of k. One block of threads adds them.
inline constexpr int kMostSlices = 64;
inline constexpr int kSlicesOfWarp = 8;  // that one warp adds

// The problem of the kernel that computes the sums of slices of k: its result has a matrix for each
// slice, and it has no epilogue. a and b keep their batch.
inline Problem partial_sums(const Problem& problem, int slices, const Matrix& sums) {
  Problem partial = problem;
  SlotSet kept{Slot::a,        Slot::b,        Slot::out,     Slot::sparse_a,
               Slot::sparse_b, Slot::packed_a, Slot::packed_b};
  if (problem.block_scaled()) kept = kept | SlotSet{Slot::scale_a, Slot::scale_b};
  for (const Slot slot : problem.operands.given() - kept) partial.reset(slot);
  partial.batch = problem.batch * slices;
  partial.set(Slot::out, sums);
  partial.activation = Activation::none;
  partial.alpha = partial.beta = 1;
  partial.binary = BinaryOperation::and_;
  return partial;
}

// The transposed problem, out^T = b^T a^T: its a is b^T, and its b is a^T (swap AB).
inline Problem transposed(const Problem& problem) {
  Problem result = problem;
  std::swap(result.m, result.n);
  std::swap(result.input_a, result.input_b);
  result.constant = transposed(problem.constant);
  result.grouped = swapped_mn(problem.grouped);
  for (const Slot slot : problem.operands.given()) result.reset(slot);
  for (const Slot slot : problem.operands.given())
    result.set(partner(slot), transposed(problem[slot]));
  return result;
}

}  // namespace tcgemm
