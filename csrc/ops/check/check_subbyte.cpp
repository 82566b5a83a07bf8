// The checks of sub-byte operands: uint8 tensors whose bytes hold several elements along K.
#include <string_view>

#include "ops/check/check.h"

namespace tcgemm::ops {
namespace {

// The types of a and b: "s4,u4".
bool read_types(std::string_view text, DType& a, DType& b) {
  for (const DType x : {DType::s4, DType::u4, DType::b1})
    for (const DType y : {DType::s4, DType::u4, DType::b1}) {
      if (text != join(name(x), ",", name(y))) continue;
      a = x;
      b = y;
      return (x == DType::b1) == (y == DType::b1);
    }
  return false;
}

void read_operation(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  const std::string_view text = arguments.operation ? std::string_view(*arguments.operation) : "";
  for (int i = 0; i < kBinaryOperations; ++i) {
    checked.binary = static_cast<BinaryOperation>(i);
    if (text == name(checked.binary)) return;
  }
  fail(name(op), ": operation is \"", text, "\", but binary products count by \"and\", \"xor\" or ",
       "\"pm1\"; pass one of these.");
}

// `from_last`: the dimension of K, counted from the last one. `k`: its extent; -1: all of the
// bytes.
void bind(const Operator& op, View& view, DType type, int from_last, std::int64_t k,
          SubbyteDims& dims) {
  const char* const elements = type_name(type);
  const std::int64_t per_byte = 8 / bits(type);
  if (!view.has_dtype || view.dtype != DType::u8)
    fail(name(op), ": ", view.name, " is ", type_name(view), ", but ", elements,
         " operands are torch.uint8 tensors that hold ", per_byte,
         " elements in each byte; pass the attribute `bytes` of a ",
         type == DType::b1 ? "tcgemm.BinaryTensor." : "tcgemm.Int4Tensor.");
  if (view.dims < 2)
    fail(name(op), ": ", view.name, " of ", elements, " has shape ", view.shape(),
         " in bytes, but must be at least a matrix; unsqueeze it.");
  const std::int64_t along_k = view.dims - from_last;
  if (view.elements() > 0 && view.sizes[along_k] > 1 && view.strides[along_k] != 1)
    fail(name(op), ": ", view.name, " of ", elements, " has the strides ",
         Shape{view.strides, view.dims},
         " in bytes, but bytes that follow each other along K must ",
         "be adjacent in memory; pass a contiguous tensor with K last",
         from_last == 2 ? ", transposed" : "", ".");
  const std::int64_t extent = k < 0 ? view.sizes[along_k] * per_byte : k;
  const std::int64_t all = view.sizes[along_k] * per_byte;
  if (extent > all || extent <= all - per_byte)
    fail(name(op), ": k is ", k, ", but ", view.name, " has ", view.sizes[along_k],
         " bytes along K, which hold ", all, " bits; pass a k that ends in the last byte.");
  for (std::int64_t d = 0; d < view.dims; ++d) {
    dims.sizes[d] = d == along_k ? extent : view.sizes[d];
    // A dimension of size 1 has any stride, which nobody steps.
    dims.strides[d] = d == along_k || view.sizes[d] <= 1 ? 1 : view.strides[d] * per_byte;
  }
  view.sizes = dims.sizes;
  view.strides = dims.strides;
  view.dtype = type;
}

// explain and check_layout have arguments that a binary product has not.
void check_no_epilogue(const Operator& op, const Arguments& arguments, const CheckedGemm& checked) {
  constexpr SlotSet kOthers = kAllSlots - SlotSet{Slot::a, Slot::b, Slot::out};
  for (const Slot slot : kOthers)
    if (const View& view = checked[slot].view)
      fail(name(op), ": ", view.name, " is given, but a binary product has no epilogue; leave ",
           view.name, " out.");
  if (arguments.activation || arguments.alpha != 1.0 || arguments.amax)
    fail(name(op), ": activation, alpha or amax is given, but a binary product has no epilogue; ",
         "leave them out.");
}

}  // namespace

// A byte holds two or eight elements of K, the first one in its lowest bits:
//
//   a (.., M, K): bytes (.., M, bytes_of(K)), contiguous along the last dimension
//   b (.., K, N): bytes (.., bytes_of(K), N), contiguous along the dimension before the last
void bind_subbyte(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  const std::string_view text = *arguments.types;
  DType a = DType::s4, b = DType::s4;
  if (!read_types(text, a, b))
    fail(name(op), ": types is \"", text,
         "\", but sub-byte operands are of s4 and u4 in any mix, or ",
         "both of b1; pass two of these, as \"s4,u4\".");
  if (a == DType::b1) {
    read_operation(op, arguments, checked);
    check_no_epilogue(op, arguments, checked);
  }
  const std::int64_t k = a == DType::b1 ? arguments.k : -1;
  bind(op, checked[Slot::a].view, a, 1, k, checked.subbyte_a);
  bind(op, checked[Slot::b].view, b, 2, k, checked.subbyte_b);
}

}  // namespace tcgemm::ops
