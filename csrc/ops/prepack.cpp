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
  Geometry g;
  Operand& b = g.operand[B];
  b.view = w;
  place(b, true, true);
  std::swap(b.rows, b.cols);
  std::swap(b.stride_row, b.stride_col);
  g.m = 1;
  g.n = b.cols;
  g.k = b.rows;
  Products products;
  collapse(g, 1.0, 1.0, products);
  return products.problem;
}

Handle bytes(std::size_t count, const View& like) {
  const std::int64_t size = static_cast<std::int64_t>(count);
  return allocate("the parts of w", {&size, 1}, type_of(DType::u8), like);
}

}  // namespace

Handle prepare(const Handle& tensor, RunPrepare run) {
  const View w = read(kName, "w", tensor);
  check(w);
  if (run == nullptr || w.elements() == 0 || w.sizes[1] < plan::kLeastDepth) return bytes(0, w);
  const Problem problem = problem_of(w);
  Handle blob = bytes(plan::blob_bytes(problem, kBf16Parts), w);
  run(problem, blob, w);
  if (first_byte(blob) & kVerdictBf16) return blob;
  const Handle used =
      first_bytes(blob, static_cast<std::int64_t>(plan::blob_bytes(problem, kF16Parts)));
  return contiguous_copy("the parts of w", used, read(kName, "the parts of w", used));
}

}  // namespace tcgemm::ops
