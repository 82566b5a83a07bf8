// The checks of terms_b: the byte vector that tcgemm.prepare returned for this b.
#include "core/split_fp32.h"
#include "ops/check/check.h"
#include "plan/split_fp32.h"

namespace tcgemm::ops {
namespace {

constexpr std::uintptr_t kPreparedAlignment = 256;

bool is_empty(const View& view) { return view.elements() == 0; }

}  // namespace

// The content of the vector:
//
//   prepare(w) --> decision | statistics | ranges | terms     b = w.t(): the terms of its columns
//
// The length follows from b's shape and strides, and tells two f16 terms from three bf16 terms. An
// empty vector means that GEMMs read b itself.
void check_terms(const Operator& op, const CheckedGemm& checked) {
  const View& view = checked[Slot::terms_b].view;
  if (!view) return;
  const View& a = checked[Slot::a].view;
  const View& b = checked[Slot::b].view;
  constexpr const char* kRemedy = "; leave terms_b out.";
  if (a.dtype != DType::f32)
    fail(name(op), ": terms_b is given, but only torch.float32 operands have terms, and ", a.name,
         " is ", type_name(a), kRemedy);
  if (checked.input_b != DType::f32)
    fail(name(op), ": terms_b is given, but its terms are for precision \"highest\", ",
         "and another one is asked for", kRemedy);
  if (b.dims != 2)
    fail(name(op), ": terms_b is given, which has the terms of one matrix, but ", b.name,
         " has shape ", b.shape(), kRemedy);
  const bool is_byte_vector = view.has_dtype && view.dtype == DType::u8 && view.dims == 1 &&
                              (is_empty(view) || view.strides[0] == 1);
  if (!is_byte_vector || (!is_empty(view) && view.address % kPreparedAlignment != 0))
    fail(name(op), ": terms_b must be contiguous torch.uint8 with one dimension that begins at ",
         "a multiple of 256 bytes, as prepare returns it, but is ", type_name(view), " of shape ",
         view.shape(), " with strides ", Shape{view.strides, view.dims},
         "; pass it as it was returned.");
}

void bind_terms(const Operator& op, const CheckedGemm& checked, Problem& problem) {
  const View& view = checked[Slot::terms_b].view;
  if (!view || is_empty(view)) return;
  const std::int64_t f16_bytes = std::int64_t(plan::prepared_bytes(problem, kF16Terms));
  const std::int64_t bf16_bytes = std::int64_t(plan::prepared_bytes(problem, kBf16Terms));
  const std::int64_t bytes = view.elements();
  if (bytes != f16_bytes && bytes != bf16_bytes)
    fail(name(op), ": terms_b has ", bytes, " bytes, but the terms of b of shape ",
         checked[Slot::b].view.shape(), ", as it lies in memory, are ", f16_bytes, " or ",
         bf16_bytes, "; prepare this b, or leave terms_b out.");
  problem.set(Slot::terms_b, Matrix{view.address, DType::u8});
  problem.prepared_terms = bytes == f16_bytes ? kF16Terms : kBf16Terms;
}

}  // namespace tcgemm::ops
