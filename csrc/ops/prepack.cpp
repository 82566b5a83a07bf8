// The parts of a float32 operand, made once for many products (core/split_fp32.h).
//
//   w (N, K) --> blob of b = w.t(), with room for bf16 parts --> the same, cut to the parts it has
#include "ops/prepack.h"

#include "core/params.h"
#include "core/split_fp32.h"
#include "ops/batch.h"
#include "plan/split_fp32.h"

namespace tcgemm::ops {
namespace {

constexpr const char* kName = "tcgemm.prepare";

void check(const View& w) {
  if (!w.known || w.dtype != DType::f32)
    fail(kName, ": w is ", type_name(w.type),
         ", but torch.float32 alone is split into parts before it is multiplied; pass such a w to "
         "the products as it is.");
  if (w.dims != 2)
    fail(kName, ": w must be a matrix (N, K), as the weight of tcgemm.linear, but has shape ",
         w.shape(), "; prepare one matrix at a time.");
  for (std::int64_t d = 0; d < w.dims; ++d)
    if (w.sizes[d] > kLargestExtent)
      fail(kName, ": w of shape ", w.shape(), " has a dimension of ", w.sizes[d],
           ", but each can be at most 2**31 - 1024; split it with torch.split.");
}

// The product of one row with w.t(): its b is that of every product.
Problem problem_of(const View& w) {
  CheckedGemm g;
  CheckedOperand& b = g.operand[B];
  b.view = w;
  bind_matrix_dims(b, true, true);
  std::swap(b.rows, b.cols);
  std::swap(b.stride_row, b.stride_col);
  g.m = 1;
  g.n = b.cols;
  g.k = b.rows;
  BatchedProblem products;
  collapse(g, 1.0, 1.0, products);
  return products.problem;
}

TensorHandle bytes(std::size_t count, const View& like) {
  const std::int64_t size = static_cast<std::int64_t>(count);
  return allocate("the parts of w", {&size, 1}, type_of(DType::u8), like);
}

}  // namespace

TensorHandle prepare(const TensorHandle& tensor, RunPrepare run) {
  const View w = view_of(kName, "w", tensor);
  check(w);
  if (run == nullptr || w.elements() == 0 || w.sizes[1] < plan::kLeastDepth) return bytes(0, w);
  const Problem problem = problem_of(w);
  TensorHandle prepacked = bytes(plan::prepacked_bytes(problem, kBf16Terms), w);
  run(problem, prepacked, w);
  if (first_byte(prepacked) & kUseBf16) return prepacked;
  const TensorHandle used =
      first_bytes(prepacked, static_cast<std::int64_t>(plan::prepacked_bytes(problem, kF16Terms)));
  return contiguous_copy("the parts of w", used, view_of(kName, "the parts of w", used));
}

}  // namespace tcgemm::ops
