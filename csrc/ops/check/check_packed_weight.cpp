// The checks of packed_b, a weight of 4 or 8 bits: core/packed_weight.h has its order.
#include <string_view>

#include "ops/check/check.h"

namespace tcgemm::ops {
namespace {

constexpr std::uintptr_t kPackedAlignment = 16;

WeightFormat parse_format(const Operator& op, std::string_view text) {
  for (int i = 1; i < kWeightFormats; ++i)
    if (text == name(static_cast<WeightFormat>(i))) return static_cast<WeightFormat>(i);
  fail(name(op), ": weight_format is \"", text,
       "\", but there are \"int4\", \"table4\", \"int8\" and \"e4m3\"; pass one of these.");
}

WeightZeros parse_zeros(const Operator& op, std::string_view text, WeightFormat format) {
  for (int i = 0; i < kWeightZeros; ++i) {
    const auto zeros = static_cast<WeightZeros>(i);
    if (text != name(zeros)) continue;
    if (zeros == WeightZeros::none || format == WeightFormat::int4) return zeros;
    fail(name(op), ": zeros is \"", text, "\", but only \"int4\" has zero points and offsets, and ",
         "weight_format is \"", name(format), "\"; pass zeros=\"none\".");
  }
  fail(name(op), ": zeros is \"", text,
       "\", but there are \"none\", \"points\" and \"offsets\"; pass one of these.");
}

// The length of the vectors that a product sums: columns of a.
std::int64_t depth(const Operator& op, const View& a) {
  if (a.dims == 0)
    fail(name(op), ": a must be at least a vector (K,), but has shape (); multiply by a number ",
         "with *.");
  return a.sizes[a.dims - 1];
}

void check_bytes(const Operator& op, const View& packed, const PackedLayout& layout) {
  const bool is_u8 = packed.has_dtype && packed.dtype == DType::u8;
  if (is_u8 && packed.dims == 1 && packed.sizes[0] == layout.bytes() &&
      (packed.sizes[0] == 1 || packed.strides[0] == 1) && packed.address % kPackedAlignment == 0)
    return;
  fail(name(op), ": packed_b must be contiguous torch.uint8 of shape (", layout.bytes(),
       ",), aligned to ", kPackedAlignment, " bytes, for a weight of ", layout.n, " rows and ",
       layout.k, " columns in \"", name(layout.weight.format), "\", but is ",
       type_name(packed.scalar_type), " of shape ", packed.shape(),
       "; pass what PackedWeight.arranged() returns.");
}

}  // namespace

void bind_packed_weight(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  const View& a = checked[Slot::a].view;
  const View& packed = checked[Slot::packed_b].view;
  PackedLayout layout{arguments.packed_n, depth(op, a), {}};
  if (!a.has_dtype || (a.dtype != DType::f16 && a.dtype != DType::bf16))
    fail(name(op), ": ", a.name, " is ", type_name(a.scalar_type),
         ", but a packed weight is multiplied by torch.float16 or torch.bfloat16; convert ", a.name,
         " with .to(...).");
  if (layout.n < 0)
    fail(name(op), ": n is ", layout.n, ", but is the number of rows of the weight; pass that.");
  layout.weight.format = parse_format(op, arguments.weight_format);
  layout.weight.zeros = parse_zeros(op, arguments.weight_zeros, layout.weight.format);
  if (!is_group_size(arguments.group_size) || arguments.group_size > layout.k)
    fail(name(op), ": group_size is ", arguments.group_size, ", but can be 16, 32, a multiple of ",
         PackedLayout::kDepth, " up to K = ", layout.k,
         ", or 0 for a whole row; pass one of these.");
  layout.weight.group_size = std::int32_t(arguments.group_size);
  check_bytes(op, packed, layout);
  checked.weight = layout.weight;
  // The matrix that the weight stands for: K-major, and nowhere in memory.
  checked.weight_sizes[0] = layout.k;
  checked.weight_sizes[1] = layout.n;
  checked.weight_strides[0] = 1;
  checked.weight_strides[1] = round_up(std::max<std::int64_t>(layout.k, 1), PackedLayout::kDepth);
  View& b = checked[Slot::b].view;
  b = a;
  b.name = name(Slot::packed_b);
  b.sizes = checked.weight_sizes;
  b.strides = checked.weight_strides;
  b.dims = 2;
  b.address = 0;
}

void set_packed_weight(const CheckedGemm& checked, Problem& problem) {
  const View& view = checked[Slot::packed_b].view;
  if (!view || checked.k == 0) return;  // without k there is nothing to multiply
  problem.set(Slot::packed_b, Matrix{view.address, DType::u8});
  problem.packed = checked.weight;
}

}  // namespace tcgemm::ops
