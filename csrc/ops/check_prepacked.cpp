// The rules for prepared_b: one tensor of bytes, as prepare returned it for this very b.
//
//   prepare(w) --> verdict | notes | ranges | parts     b = w.t(): parts of its columns
//
// Its length follows from b's shape and strides, and says how many parts there are; without bytes
// it says that nothing was made.
#include "core/split_fp32.h"
#include "ops/check.h"
#include "plan/split_fp32.h"

namespace tcgemm::ops {
namespace {

constexpr std::uintptr_t kBlobAlignment = 256;

bool nothing(const View& view) { return view.elements() == 0; }

}  // namespace

void check_prepacked(Op op, const CheckedGemm& g) {
  const View& view = g.operand[PreparedB].view;
  if (!view) return;
  const View& a = g.operand[A].view;
  const View& b = g.operand[B].view;
  constexpr const char* kMend = "; leave prepared_b away.";
  if (a.dtype != DType::f32)
    fail(name(op), ": prepared_b is given, but only torch.float32 operands have parts, and ",
         a.name, " is ", type_name(a.type), kMend);
  if (g.input_b != DType::f32)
    fail(name(op), ": prepared_b is given, but its parts are those of precision \"highest\", ",
         "and another one is asked for", kMend);
  if (b.dims != 2)
    fail(name(op), ": prepared_b is given, which has the parts of one matrix, but ", b.name,
         " has shape ", b.shape(), kMend);
  const bool bytes = view.known && view.dtype == DType::u8 && view.dims == 1 &&
                     (nothing(view) || view.strides[0] == 1);
  if (!bytes || (!nothing(view) && view.address % kBlobAlignment != 0))
    fail(name(op), ": prepared_b must be contiguous torch.uint8 with one dimension that begins at ",
         "a multiple of 256 bytes, as prepare returns it, but is ", type_name(view.type),
         " of shape ", view.shape(), " with strides ", Shape{view.strides, view.dims},
         "; pass it as it was returned.");
}

void bind_prepacked(Op op, const CheckedGemm& g, Problem& problem) {
  const View& view = g.operand[PreparedB].view;
  if (!view || nothing(view)) return;
  const std::int64_t f16 = std::int64_t(plan::prepacked_bytes(problem, kF16Terms));
  const std::int64_t bf16 = std::int64_t(plan::prepacked_bytes(problem, kBf16Terms));
  const std::int64_t bytes = view.elements();
  if (bytes != f16 && bytes != bf16)
    fail(name(op), ": prepared_b has ", bytes, " bytes, but those of b of shape ",
         g.operand[B].view.shape(), ", as it lies in memory, are ", f16, " or ", bf16,
         "; prepare this b, or leave prepared_b away.");
  problem.prepacked_b = Prepacked{view.address, bytes == f16 ? kF16Terms : kBf16Terms};
}

}  // namespace tcgemm::ops
