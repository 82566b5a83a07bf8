// Tensors -> Geometry: every check that a call must pass, and the shape of its result.
//
// After check() nothing can be wrong with a call but a lack of memory; a kernel never sees bad
// input. All five operators and the general product become one form:
//
//   out[batch..., m, n] = activation(alpha * (a[batch..., m, k] @ b[batch..., k, n]) + ...) + ...
//
// (all of it is in core/problem.h), in which a 1-D operand of matmul or linear has a row or a
// column that the result does not show.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/problem.h"
#include "ops/arguments.h"
#include "ops/tensor.h"

namespace tcgemm::ops {

// Who will compute it. `plan`: nobody, the question is what a GPU would do (explain, check_layout).
enum class Target : std::uint8_t { cpu, cuda, plan };

enum Slot : int {
  A,
  B,
  C,
  Bias,
  Residual,
  ScaleA,
  ScaleB,
  ZeroA,
  ZeroB,
  ScaleOut,
  PreparedB,
  SparseA,  // of an operand that is sparse along k: its metadata; the operand's view has values
  SparseB,
  Out,  // after all that is read
  kSlots
};

// A tensor as the product sees it. Dimensions before the matrix are batch dimensions; a row or
// column that the tensor does not have is one of size 1.
struct CheckedOperand {
  View view;
  std::int64_t batch_dims = 0;
  std::int64_t rows = 1, cols = 1;
  std::int64_t stride_row = 0, stride_col = 0;
  int shift_row = 0, shift_col = 0;  // of scales: a value serves 1 << shift rows, columns
};

struct CheckedGemm {
  CheckedOperand operand[kSlots];  // Out: where the caller gave one
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch_dims = 0;
  std::int64_t batch[kMaxDims];
  bool shows_rows = true, shows_cols = true;  // false: a 1-D a, a 1-D b
  std::int64_t dims = 0;                      // of the result
  std::int64_t sizes[kMaxDims];
  DType out_dtype = DType::f32;
  DType input_a = DType::f32, input_b = DType::f32;  // as in Problem
  DType accumulator = DType::f32;
  bool promote = false;
  Activation activation = Activation::none;

  Shape shape() const { return {sizes, dims}; }
  bool empty() const { return std::find(sizes, sizes + dims, 0) != sizes + dims; }
};

// The words for a call in its errors: "tcgemm.mm".
const char* name(Op op);

// Throws std::runtime_error with a sentence that names the tensor, what was expected, what came,
// and how to mend it.
void check(Op op, const Arguments& arguments, Target target, CheckedGemm& checked);

// The parts of it, in the order in which they run. check_scales also fills in their strides: 0
// along what one value serves.
void read_tensors(Op op, const Arguments& arguments, CheckedGemm& checked);
void check_types(Op op, const Arguments& arguments, CheckedGemm& checked);
void check_product(Op op, CheckedGemm& checked, Target target);
void check_epilogue(Op op, CheckedGemm& checked);
void check_scales(Op op, CheckedGemm& checked);
void check_prepacked(Op op, const CheckedGemm& checked);
void check_one_sparse(Op op, const CheckedGemm& checked);
void check_sparse(Op op, const Arguments& arguments, Target target, CheckedGemm& checked);
void check_out(Op op, CheckedGemm& checked);

// Gives the collapsed problem what prepare made of its b, which must have the length that b's shape
// and strides ask for.
void bind_prepacked(Op op, const CheckedGemm& checked, Problem& problem);

// Gives it the metadata of a sparse operand.
void bind_sparse(const CheckedGemm& checked, Problem& problem);

// So many columns of values has an operand whose K is this, if it is sparse.
std::int64_t stored_k(const CheckedGemm& checked, Slot operand, std::int64_t k);

// Fills in rows, columns and batch dimensions of a tensor that lies as the result does.
void bind_matrix_dims(CheckedOperand& operand, bool shows_rows, bool shows_cols);

}  // namespace tcgemm::ops
