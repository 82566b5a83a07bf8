// Arguments -> CheckedGemm: the checks of a GEMM call, and the shape of its result.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/operands.h"
#include "core/problem.h"
#include "ops/arguments.h"
#include "ops/operator.h"
#include "ops/target.h"
#include "ops/tensor.h"

namespace tcgemm::ops {

// A tensor as the GEMM reads it: batch dimensions, then rows and columns. A row or column dimension
// that the tensor lacks has size 1.
struct CheckedOperand {
  View view;
  std::int64_t batch_dims = 0;
  std::int64_t rows = 1, cols = 1;
  std::int64_t stride_row = 0, stride_col = 0;
  int shift_row = 0, shift_col = 0;  // scales: one value serves 1 << shift rows or columns
};

// The sizes and strides of a sub-byte tensor in elements.
struct SubbyteDims {
  std::int64_t sizes[kMaxDims], strides[kMaxDims];
};

struct CheckedGemm {
  PerSlot<CheckedOperand> operands;  // out: empty unless the caller gave one
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch_dims = 0;
  std::int64_t batch[kMaxDims];
  bool shows_rows = true, shows_cols = true;  // false for a 1-D a, a 1-D b
  std::int64_t dims = 0;                      // of the result
  std::int64_t sizes[kMaxDims];
  DType out_dtype = DType::f32;
  DType input_a = DType::f32, input_b = DType::f32;  // as in Problem
  DType accumulator = DType::f32;
  bool promote = false;
  bool as_prepared = false;  // as in Problem
  Activation activation = Activation::none;
  PackedWeight weight;  // of packed_b; b is then the matrix that it stands for, without memory
  std::int64_t weight_sizes[2], weight_strides[2];
  SubbyteDims subbyte_a, subbyte_b;  // set if the operands are sub-byte
  BinaryOperation binary = BinaryOperation::and_;
  Axis grouped = Axis::one;      // as in Problem; its groups are the batch
  std::int64_t offs_stride = 0;  // of offs, in words of 32 bits

  CheckedOperand& operator[](Slot slot) { return operands[slot]; }
  const CheckedOperand& operator[](Slot slot) const { return operands[slot]; }
  Shape shape() const { return {sizes, dims}; }
  // Is every index of the result, or of k, in no group, whatever offs has?
  bool has_no_group() const {
    return grouped != Axis::one && (batch[0] == 0 || (grouped == Axis::k && k == 0));
  }
  bool empty() const { return std::find(sizes, sizes + dims, 0) != sizes + dims; }
  // Has the tensor the shape of the result?
  bool fits(const View& view) const {
    return std::equal(view.sizes, view.sizes + view.dims, sizes, sizes + dims);
  }
};

// A call that passes check() can fail only for lack of memory; no kernel gets bad input. Every
// operator becomes one form; core/problem.h has its whole formula:
//
//   out[batch..., m, n] = activation(alpha * (a[batch..., m, k] @ b[batch..., k, n]) + ...) + ...
//
// A 1-D operand of matmul or linear gets a dimension of size 1, which the result does not show.
//
// Throws std::runtime_error. Its sentence names the tensor, what was expected, what was passed, and
// what to do instead.
void check(const Operator& op, const Arguments& arguments, Target target, CheckedGemm& checked);

// The steps of check(), in the order in which they run.
void read_tensors(const Operator& op, const Arguments& arguments, CheckedGemm& checked);
// Checks packed_b, and sets b.
void bind_packed_weight(const Operator& op, const Arguments& arguments, CheckedGemm& checked);
// Gives the views of sub-byte operands their types, and sizes and strides in elements.
void bind_subbyte(const Operator& op, const Arguments& arguments, CheckedGemm& checked);
void check_types(const Operator& op, const Arguments& arguments, CheckedGemm& checked);
// With accumulate=True there is an out, and nothing but the product is added to it.
void check_accumulate(const Operator& op, const Arguments& arguments, const CheckedGemm& checked);
// The rule of shapes of the call. A description that has offs is about grouped_mm.
inline Shapes shapes_of(const Operator& op, const CheckedGemm& checked) {
  return checked[Slot::offs].view ? Shapes::grouped : op.shapes;
}
// A description that has offs has no argument that grouped_mm lacks.
void check_description(const Operator& op, const Arguments& arguments, const CheckedGemm& checked);
// The dtypes of a, b and offs of a grouped product.
void check_grouped_types(const Operator& op, const CheckedGemm& checked);
void check_operand_shapes(const Operator& op, CheckedGemm& checked, Target target);
// Sets the dimension that is grouped, and the groups as the batch; checks the form of offs.
void bind_groups(const Operator& op, CheckedGemm& checked);
// The values of offs on a CPU; on a GPU with TCGEMM_CHECK=1. Binds offs to its words of 32 bits.
void check_offs(const Operator& op, const Arguments& arguments, CheckedGemm& checked);
// The bias and the residual of a grouped product.
void bind_grouped_addends(const Operator& op, CheckedGemm& checked);
void check_epilogue_shapes(const Operator& op, CheckedGemm& checked);
// Also sets the strides of the scales: 0 along a dimension that one value serves.
void check_scales(const Operator& op, CheckedGemm& checked);
void check_terms(const Operator& op, const CheckedGemm& checked);
void check_single_sparse(const Operator& op, const CheckedGemm& checked);
void check_sparse(const Operator& op, const Arguments& arguments, Target target,
                  CheckedGemm& checked);
void check_out(const Operator& op, const Arguments& arguments, CheckedGemm& checked);

// Sets the prepared terms of b, and checks that its length follows from the shape and strides of
// b.
void bind_terms(const Operator& op, const CheckedGemm& checked, Problem& problem);

// Sets the metadata of the 2:4 operand, if there is one.
void bind_sparse(const CheckedGemm& checked, Problem& problem);

// Sets the packed weight, if there is one.
void set_packed_weight(const CheckedGemm& checked, Problem& problem);

// The stored K of operand A or B: value_columns(k) for a 2:4 operand, else k.
std::int64_t stored_k(const CheckedGemm& checked, Slot operand, std::int64_t k);

// Sets rows, columns and batch dimensions of a tensor with the dimensions of the result.
void bind_matrix_dims(CheckedOperand& operand, bool shows_rows, bool shows_cols);

}  // namespace tcgemm::ops
