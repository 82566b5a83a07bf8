// The checks that concern shapes: the two operands, then what the epilogue adds.
#include <algorithm>

#include "core/params.h"
#include "ops/check.h"

namespace tcgemm::ops {
namespace {

struct Rule {
  std::int64_t least, most;  // dimensions of a and b
  const char* form;
  const char* advice;
};

Rule rule(Op op, Slot slot) {
  if (op == Op::bmm)
    return {3, 3, slot == A ? "a batch of matrices (B, M, K)" : "a batch of matrices (B, K, N)",
            "tcgemm.mm takes matrices, and tcgemm.matmul broadcasts batches"};
  if (op == Op::linear && slot == A)
    return {1, kMaxDims, "at least a vector (K,)", "reshape it to (1, 1) if it is one number"};
  if (op == Op::linear) return {2, 2, "a matrix (N, K)", "that is (out_features, in_features)"};
  if (op == Op::gemm)
    return {2, kMaxDims, slot == A ? "at least a matrix (M, K)" : "at least a matrix (K, N)",
            "tcgemm.matmul takes vectors"};
  if (op == Op::mm || op == Op::addmm)
    return {2, 2, slot == A ? "a matrix (M, K)" : "a matrix (K, N)",
            "tcgemm.matmul takes vectors and batches, tcgemm.bmm takes batches"};
  return {1, kMaxDims, "at least a vector (K,)", "multiply by a number with *"};
}

void check_dims(Op op, const CheckedGemm& g) {
  for (const Slot slot : {A, B}) {
    const View& view = g.operand[slot].view;
    const Rule expected = rule(op, slot);
    if (view.dims >= expected.least && view.dims <= expected.most) continue;
    fail(name(op), ": ", view.name, " must be ", expected.form, ", but has shape ", view.shape(),
         "; ", expected.advice, ".");
  }
}

[[noreturn, gnu::cold]] void fail_sparse_depth(Op op, const CheckedGemm& g, Slot slot) {
  const View& view = g.operand[slot].view;
  const View& other = g.operand[slot == A ? B : A].view;
  fail(name(op), ": ", view.name, " has shape ", view.shape(), " and is sparse, and ", other.name,
       " has shape ", other.shape(), ": for K = ", g.k, " there are ", stored_k(g, slot, g.k),
       " values along K; pass the values of a matrix with that K.");
}

[[noreturn, gnu::cold]] void fail_depth(Op op, const View& a, const View& b, std::int64_t k,
                                        std::int64_t got) {
  if (op == Op::linear)
    fail(name(op), ": the last dimensions of x and weight must agree, but x has shape ", a.shape(),
         " and weight ", b.shape(), ": K is ", k, " in x and ", got,
         " in weight; weight is (N, K), so pass weight.t() if yours is stored as (K, N).");
  fail(name(op), ": a of shape ", a.shape(), " and b of shape ", b.shape(),
       " cannot be multiplied: a has ", k, " columns (K), but b has ", got,
       " rows; pass a b with K = ", k, " rows, for example b.mT if yours is stored as (N, K).");
}

void check_batch(Op op, CheckedGemm& g) {
  const CheckedOperand& a = g.operand[A];
  const CheckedOperand& b = g.operand[B];
  g.batch_dims = std::max(a.batch_dims, b.batch_dims);
  for (std::int64_t d = 0; d < g.batch_dims; ++d) {
    const std::int64_t in_a = d - (g.batch_dims - a.batch_dims);
    const std::int64_t in_b = d - (g.batch_dims - b.batch_dims);
    const std::int64_t size_a = in_a < 0 ? 1 : a.view.sizes[in_a];
    const std::int64_t size_b = in_b < 0 ? 1 : b.view.sizes[in_b];
    g.batch[d] = size_a == 1 ? size_b : size_a;
    const bool broadcast = op != Op::bmm && (size_a == 1 || size_b == 1);
    if (size_a != size_b && !broadcast)
      fail(name(op), ": a of shape ", a.view.shape(), " and b of shape ", b.view.shape(),
           " have different batches: ", size_a, " against ", size_b,
           op == Op::bmm ? "; tcgemm.matmul broadcasts a batch of 1, or use expand."
                         : ", and neither is 1; use expand or reshape so that they broadcast.");
  }
}

// Indices inside the kernels are 32 bits wide along each dimension.
void check_range(Op op, const CheckedGemm& g) {
  for (const Slot slot : {A, B}) {
    const View& view = g.operand[slot].view;
    for (std::int64_t d = 0; d < view.dims; ++d)
      if (view.sizes[d] > kLargestExtent)
        fail(name(op), ": ", view.name, " of shape ", view.shape(), " has a dimension of ",
             view.sizes[d],
             ", but on a GPU each can be at most 2**31 - 1024; split it with "
             "torch.split, or reshape it.");
  }
}

void check_linear_bias(Op op, const CheckedGemm& g) {
  const View& bias = g.operand[Bias].view;
  if (bias.dims == 1 && bias.sizes[0] == g.n) return;
  fail(name(op), ": bias must have shape (", g.n, ",), one number for each row of weight, but has ",
       bias.shape(), "; pass anything that varies along other dimensions as residual.");
}

void check_bias(Op op, const CheckedGemm& g) {
  const CheckedOperand& bias = g.operand[Bias];
  const std::int64_t dims = bias.view.dims;
  const bool most = op == Op::mm || op == Op::addmm ? dims <= 2 : true;
  const bool row = dims >= 1 && bias.rows == 1 && bias.cols == g.n;
  const bool column = dims >= 2 && bias.rows == g.m && bias.cols == 1;
  if (most && (row || column)) return;
  fail(name(op), ": bias must have shape (", g.n, ",), (1, ", g.n, ") or (", g.m, ", 1), but has ",
       bias.view.shape(),
       "; pass anything that varies along both as residual, or as c of tcgemm.addmm.");
}

// What is added may have fewer dimensions than the result, and 1 where the result has more.
void check_broadcast(Op op, const CheckedGemm& g, const CheckedOperand& operand) {
  bool fits = operand.batch_dims <= g.batch_dims && (operand.rows == 1 || operand.rows == g.m) &&
              (operand.cols == 1 || operand.cols == g.n);
  for (std::int64_t d = 0; fits && d < operand.batch_dims; ++d) {
    const std::int64_t size = operand.view.sizes[d];
    fits = size == 1 || size == g.batch[d + g.batch_dims - operand.batch_dims];
  }
  if (fits) return;
  fail(name(op), ": ", operand.view.name, " of shape ", operand.view.shape(),
       " does not broadcast to the result's shape ", g.shape(),
       "; each of its dimensions, counted from the last, must be 1 or that of the result.");
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

void check_product(Op op, CheckedGemm& g, Target target) {
  check_dims(op, g);
  CheckedOperand& a = g.operand[A];
  CheckedOperand& b = g.operand[B];
  g.shows_rows = a.view.dims > 1;
  g.shows_cols = b.view.dims > 1;
  bind_matrix_dims(a, g.shows_rows, true);
  if (g.shows_cols) {
    bind_matrix_dims(b, true, true);
    if (op == Op::linear) {  // stored as (N, K)
      std::swap(b.rows, b.cols);
      std::swap(b.stride_row, b.stride_col);
    }
  } else {
    bind_matrix_dims(b, true, false);
  }
  g.m = a.rows;
  g.k = g.operand[SparseA].view ? b.rows : a.cols;
  g.n = b.cols;
  const bool sparse = g.operand[SparseA].view || g.operand[SparseB].view;
  if (sparse && stored_k(g, A, g.k) != a.cols) fail_sparse_depth(op, g, A);
  if (sparse && stored_k(g, B, g.k) != b.rows) fail_sparse_depth(op, g, B);
  if (!sparse && b.rows != g.k) fail_depth(op, a.view, b.view, g.k, b.rows);
  check_batch(op, g);
  if (target != Target::cpu) check_range(op, g);

  std::copy_n(g.batch, g.batch_dims, g.sizes);
  g.dims = g.batch_dims;
  if (g.shows_rows) g.sizes[g.dims++] = g.m;
  if (g.shows_cols) g.sizes[g.dims++] = g.n;
}

void check_epilogue(Op op, CheckedGemm& g) {
  for (const Slot slot : {C, Bias, Residual}) {
    CheckedOperand& operand = g.operand[slot];
    if (!operand.view) continue;
    // The shapes of a bias are told in terms of m and n, also where matmul's result lacks one.
    const bool full = slot == Bias;
    bind_matrix_dims(operand, full || g.shows_rows, full || g.shows_cols);
    if (slot == Bias && op == Op::linear) check_linear_bias(op, g);
    if (slot == Bias && op != Op::linear && op != Op::gemm) check_bias(op, g);
    check_broadcast(op, g, operand);
  }
}

}  // namespace tcgemm::ops
