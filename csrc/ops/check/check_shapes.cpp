// The checks of shapes: a and b, then c, bias and residual.
#include <algorithm>

#include "core/params.h"
#include "ops/check/check.h"

namespace tcgemm::ops {
namespace {

struct DimsRule {
  std::int64_t least, most;  // number of dimensions
  const char* form;
  const char* advice;
};

// Takes batches of one size alone, as torch.bmm and torch.baddbmm do.
bool takes_batches(Shapes shapes) { return shapes == Shapes::batches || shapes == Shapes::grouped; }

DimsRule dims_rule(Shapes shapes, Slot slot, bool adds_c) {
  const bool is_a = slot == Slot::a;
  switch (shapes) {
    case Shapes::batches:
      return {3, 3, is_a ? "a batch of matrices (B, M, K)" : "a batch of matrices (B, K, N)",
              adds_c ? "tcgemm.addmm takes matrices, and tcgemm.matmul broadcasts batches"
                     : "tcgemm.mm takes matrices, and tcgemm.matmul broadcasts batches"};
    case Shapes::linear:
      if (!is_a) return {2, 2, "a matrix (N, K)", "that is (out_features, in_features)"};
      return {1, kMaxDims, "at least a vector (K,)", "reshape it to (1, 1) if it is one number"};
    case Shapes::at_least_matrices:
      return {2, kMaxDims, is_a ? "at least a matrix (M, K)" : "at least a matrix (K, N)",
              "tcgemm.matmul takes vectors"};
    case Shapes::matrices:
      return {2, 2, is_a ? "a matrix (M, K)" : "a matrix (K, N)",
              "tcgemm.matmul takes vectors and batches, tcgemm.bmm takes batches"};
    case Shapes::grouped:
      return {2, 3, is_a ? "a matrix or a batch (G, M, K)" : "a matrix or a batch (G, K, N)",
              "the first dimension of a batch counts groups"};
    case Shapes::any: break;
  }
  return {1, kMaxDims, "at least a vector (K,)", "multiply by a number with *"};
}

void check_dims(const Operator& op, const CheckedGemm& checked) {
  for (const Slot slot : {Slot::a, Slot::b}) {
    const View& view = checked[slot].view;
    const DimsRule expected = dims_rule(shapes_of(op, checked), slot, bool(checked[Slot::c].view));
    if (view.dims >= expected.least && view.dims <= expected.most) continue;
    fail(name(op), ": ", view.name, " must be ", expected.form, ", but has shape ", view.shape(),
         "; ", expected.advice, ".");
  }
}

[[noreturn, gnu::cold]] void fail_stored_k(const Operator& op, const CheckedGemm& checked,
                                           Slot slot) {
  const View& view = checked[slot].view;
  const View& dense = checked[slot == Slot::a ? Slot::b : Slot::a].view;
  fail(name(op), ": ", view.name, " has shape ", view.shape(), " and is sparse, and ", dense.name,
       " has shape ", dense.shape(), ": for K = ", checked.k, " there are ",
       stored_k(checked, slot, checked.k),
       " values along K; pass the values of a matrix with that K.");
}

[[noreturn, gnu::cold]] void fail_k(const Operator& op, const CheckedGemm& checked) {
  const View& a = checked[Slot::a].view;
  const View& b = checked[Slot::b].view;
  const std::int64_t k = checked.k, k_of_b = checked[Slot::b].rows;
  if (op.shapes == Shapes::linear)
    fail(name(op), ": the last dimensions of x and weight must agree, but x has shape ", a.shape(),
         " and weight ", b.shape(), ": K is ", k, " in x and ", k_of_b,
         " in weight; weight is (N, K), so pass weight.t() if yours is stored as (K, N).");
  if (shapes_of(op, checked) == Shapes::grouped && a.dims == 2 && b.dims == 2)
    fail(name(op), ": a of shape ", a.shape(), " and b of shape ", b.shape(),
         " cannot be multiplied: a has ", k, " columns, but b has ", k_of_b,
         " rows, and the groups are groups of both; pass a.t() if yours is stored as (T, M), and "
         "b.t() if yours is stored as (N, T).");
  fail(name(op), ": a of shape ", a.shape(), " and b of shape ", b.shape(),
       " cannot be multiplied: a has ", k, " columns (K), but b has ", k_of_b,
       " rows; pass a b with K = ", k, " rows, for example b.mT if yours is stored as (N, K).");
}

void check_batch(const Operator& op, CheckedGemm& checked) {
  const Shapes shapes = shapes_of(op, checked);
  const CheckedOperand& a = checked[Slot::a];
  const CheckedOperand& b = checked[Slot::b];
  checked.batch_dims = std::max(a.batch_dims, b.batch_dims);
  for (std::int64_t d = 0; d < checked.batch_dims; ++d) {
    const std::int64_t in_a = d - (checked.batch_dims - a.batch_dims);
    const std::int64_t in_b = d - (checked.batch_dims - b.batch_dims);
    const std::int64_t size_a = in_a < 0 ? 1 : a.view.sizes[in_a];
    const std::int64_t size_b = in_b < 0 ? 1 : b.view.sizes[in_b];
    checked.batch[d] = size_a == 1 ? size_b : size_a;
    const bool broadcast =
        in_a < 0 || in_b < 0 || (!takes_batches(shapes) && (size_a == 1 || size_b == 1));
    if (size_a != size_b && !broadcast)
      fail(name(op), ": a of shape ", a.view.shape(), " and b of shape ", b.view.shape(),
           " have different batches: ", size_a, " against ", size_b,
           shapes == Shapes::grouped ? "; both have a matrix for each group, so use expand."
           : takes_batches(shapes)
               ? "; tcgemm.matmul broadcasts a batch of 1, or use expand."
               : ", and neither is 1; use expand or reshape so that they broadcast.");
  }
}

// GPU kernels index each dimension with 32 bits.
void check_range(const Operator& op, const CheckedGemm& checked) {
  for (const Slot slot : {Slot::a, Slot::b}) {
    const View& view = checked[slot].view;
    for (std::int64_t d = 0; d < view.dims; ++d)
      if (view.sizes[d] > kLargestExtent)
        fail(name(op), ": ", view.name, " of shape ", view.shape(), " has a dimension of ",
             view.sizes[d],
             ", but on a GPU each can be at most 2**31 - 1024; split it with "
             "torch.split, or reshape it.");
  }
}

void check_linear_bias(const Operator& op, const CheckedGemm& checked) {
  const View& bias = checked[Slot::bias].view;
  if (bias.dims == 1 && bias.sizes[0] == checked.n) return;
  fail(name(op), ": bias must have shape (", checked.n,
       ",), one number for each row of weight, but has ", bias.shape(),
       "; pass anything that varies along other dimensions as residual.");
}

void check_bias(const Operator& op, const CheckedGemm& checked) {
  const CheckedOperand& bias = checked[Slot::bias];
  const std::int64_t dims = bias.view.dims;
  const bool dims_fit = op.shapes != Shapes::matrices || dims <= 2;
  const bool row = dims >= 1 && bias.rows == 1 && bias.cols == checked.n;
  const bool column = dims >= 2 && bias.rows == checked.m && bias.cols == 1;
  if (dims_fit && (row || column)) return;
  fail(name(op), ": bias must have shape (", checked.n, ",), (1, ", checked.n, ") or (", checked.m,
       ", 1), but has ", bias.view.shape(),
       "; pass anything that varies along both as residual, or as c of tcgemm.addmm.");
}

// c, bias and residual may have fewer dimensions than the result, and size 1 in any of them.
void check_broadcast(const Operator& op, const CheckedGemm& checked,
                     const CheckedOperand& operand) {
  bool fits = operand.batch_dims <= checked.batch_dims &&
              (operand.rows == 1 || operand.rows == checked.m) &&
              (operand.cols == 1 || operand.cols == checked.n);
  for (std::int64_t d = 0; fits && d < operand.batch_dims; ++d) {
    const std::int64_t size = operand.view.sizes[d];
    fits = size == 1 || size == checked.batch[d + checked.batch_dims - operand.batch_dims];
  }
  if (fits) return;
  fail(name(op), ": ", operand.view.name, " of shape ", operand.view.shape(),
       " does not broadcast to the result's shape ", checked.shape(),
       "; each of its dimensions, counted from the last, must be 1 or as in the result.");
}

}  // namespace

void bind_matrix_dims(CheckedOperand& operand, bool shows_rows, bool shows_cols) {
  const View& view = operand.view;
  std::int64_t d = view.dims;
  if (shows_cols && d > 0) {
    --d;
    operand.cols = view.sizes[d];
    operand.stride_col = view.strides[d];
  }
  if (shows_rows && d > 0) {
    --d;
    operand.rows = view.sizes[d];
    operand.stride_row = view.strides[d];
  }
  operand.batch_dims = d;
}

void check_operand_shapes(const Operator& op, CheckedGemm& checked, Target target) {
  check_dims(op, checked);
  CheckedOperand& a = checked[Slot::a];
  CheckedOperand& b = checked[Slot::b];
  checked.shows_rows = a.view.dims > 1;
  checked.shows_cols = b.view.dims > 1;
  bind_matrix_dims(a, checked.shows_rows, true);
  if (checked.shows_cols) {
    bind_matrix_dims(b, true, true);
    if (op.shapes == Shapes::linear) {  // weight is (N, K)
      std::swap(b.rows, b.cols);
      std::swap(b.stride_row, b.stride_col);
    }
  } else {
    bind_matrix_dims(b, true, false);
  }
  checked.m = a.rows;
  checked.k = checked[Slot::sparse_a].view ? b.rows : a.cols;
  checked.n = b.cols;
  const bool sparse = checked[Slot::sparse_a].view || checked[Slot::sparse_b].view;
  if (sparse && stored_k(checked, Slot::a, checked.k) != a.cols)
    fail_stored_k(op, checked, Slot::a);
  if (sparse && stored_k(checked, Slot::b, checked.k) != b.rows)
    fail_stored_k(op, checked, Slot::b);
  if (!sparse && b.rows != checked.k) fail_k(op, checked);
  check_batch(op, checked);
  if (shapes_of(op, checked) == Shapes::grouped) bind_groups(op, checked);
  if (target == Target::cuda || target == Target::plan) check_range(op, checked);

  // Groups of rows or of columns are parts of one matrix.
  const bool is_one_matrix = checked.grouped == Axis::m || checked.grouped == Axis::n;
  checked.dims = is_one_matrix ? 0 : checked.batch_dims;
  std::copy_n(checked.batch, checked.dims, checked.sizes);
  if (checked.shows_rows) checked.sizes[checked.dims++] = checked.m;
  if (checked.shows_cols) checked.sizes[checked.dims++] = checked.n;
}

void check_epilogue_shapes(const Operator& op, CheckedGemm& checked) {
  if (shapes_of(op, checked) == Shapes::grouped) return bind_grouped_addends(op, checked);
  for (const Slot slot : kAddends) {
    CheckedOperand& operand = checked[slot];
    if (!operand.view) continue;
    // A bias has rows and columns even if the result of matmul with a vector lacks one of them.
    const bool is_bias = slot == Slot::bias;
    bind_matrix_dims(operand, is_bias || checked.shows_rows, is_bias || checked.shows_cols);
    if (is_bias && op.shapes == Shapes::linear)
      check_linear_bias(op, checked);
    else if (is_bias && op.shapes != Shapes::at_least_matrices)
      check_bias(op, checked);
    check_broadcast(op, checked, operand);
  }
}

}  // namespace tcgemm::ops
