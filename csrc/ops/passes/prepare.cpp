// Splits a float32 operand into its 16-bit terms once for many GEMMs (core/split_fp32.h).
//
//   w (N, K) --> workspace for b = w.t() with room for bf16 terms --> a copy cut to the f16 terms
//
// The copy is left out if the operand needs its bf16 terms.
#include "core/params.h"
#include "core/split_fp32.h"
#include "ops/operators.h"
#include "ops/product/batch.h"
#include "ops/stack_reader.h"
#include "plan/split_fp32.h"

namespace tcgemm::ops {
namespace {

void check(const char* op, const View& w) {
  if (!w.has_dtype || w.dtype != DType::f32)
    fail(op, ": w is ", type_name(w.scalar_type),
         ", but torch.float32 alone is split into terms before it is multiplied; pass such a w to "
         "the products as it is.");
  if (w.dims != 2)
    fail(op, ": w must be a matrix (N, K), as the weight of tcgemm.linear, but has shape ",
         w.shape(), "; prepare one matrix at a time.");
  for (std::int64_t d = 0; d < w.dims; ++d)
    if (w.sizes[d] > kLargestExtent)
      fail(op, ": w of shape ", w.shape(), " has a dimension of ", w.sizes[d],
           ", but each can be at most 2**31 - 1024; split it with torch.split.");
}

// A GEMM of one row with w.t(). Its b is the same as in every other GEMM with w.t().
Problem problem_of(const View& w) {
  CheckedGemm checked;
  CheckedOperand& b = checked[Slot::b];
  b.view = w;
  bind_matrix_dims(b, true, true);
  std::swap(b.rows, b.cols);
  std::swap(b.stride_row, b.stride_col);
  checked.m = 1;
  checked.n = b.cols;
  checked.k = b.rows;
  BatchedProblem batched;
  collapse(checked, 1.0, 1.0, batched);
  return batched.problem;
}

TensorHandle allocate_bytes(std::size_t count, const View& like) {
  const std::int64_t size = static_cast<std::int64_t>(count);
  return allocate("the terms of w", {&size, 1}, scalar_type_of(DType::u8), like);
}

}  // namespace

// Returns an empty tensor if GEMMs read w itself: if K is short, or if the backend splits nothing.
Results prepare(const Call& call) {
  const char* const op = name(call.op);
  const TensorHandle tensor = StackReader(call.stack).tensor();
  const View w = view_of(op, "w", tensor);
  check_backend(call.backend.target, op, {w});
  check(op, w);
  if (!call.backend.prepare || w.elements() == 0 || w.sizes[1] < plan::kLeastDepth)
    return {allocate_bytes(0, w)};
  const Problem problem = problem_of(w);
  TensorHandle prepared = allocate_bytes(plan::prepared_bytes(problem, kBf16Terms), w);
  call.backend.prepare(problem, prepared, w);
  if (first_byte(prepared) & kUseBf16) return {std::move(prepared)};
  const TensorHandle used =
      first_bytes(prepared, static_cast<std::int64_t>(plan::prepared_bytes(problem, kF16Terms)));
  return {contiguous_copy("the terms of w", used, view_of(op, "the terms of w", used))};
}

}  // namespace tcgemm::ops
