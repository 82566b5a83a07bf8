// The checks of _pack_weight.
#include "ops/passes/pack_weight.h"

#include <cmath>

#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

constexpr const char* kName = "tcgemm._pack_weight";

WeightFormat format_of(const std::string& text) {
  for (int i = 1; i < kWeightFormats; ++i)
    if (text == name(static_cast<WeightFormat>(i))) return static_cast<WeightFormat>(i);
  fail(kName, ": format is \"", text,
       "\", but there are \"int4\", \"table4\", \"int8\" and \"e4m3\"; pass one of these.");
}

ScaleType scale_type_of(const std::string& text) {
  for (int i = 0; i < kScaleTypes; ++i)
    if (text == name(static_cast<ScaleType>(i))) return static_cast<ScaleType>(i);
  fail(kName, ": scale_type is \"", text,
       "\", but there are \"float32\", \"float16\", \"bfloat16\", \"e4m3\" and \"e8m0\"; pass one "
       "of these.");
}

void check_weight(const View& w) {
  const bool is_float =
      w.known && (w.dtype == DType::f16 || w.dtype == DType::bf16 || w.dtype == DType::f32);
  if (is_float && w.dims == 2) return;
  fail(kName, ": w must be a matrix (N, K) of torch.float16, torch.bfloat16 or torch.float32, but ",
       "is ", type_name(w.scalar_type), " of shape ", w.shape(),
       "; pack one matrix at a time, and convert it with .to(...).");
}

// A contiguous f32 tensor of so many elements, or null if it is not given.
const float* numbers(const View& view, std::int64_t count, const View& w) {
  if (!view) return nullptr;
  if (!view.same_device(w))
    fail(kName, ": ", view.name, " is on ", device_name(view), ", but w is on ", device_name(w),
         "; move it with .to(w.device).");
  if (!view.known || view.dtype != DType::f32 || view.elements() != count || !is_contiguous(view))
    fail(kName, ": ", view.name, " must be contiguous torch.float32 of ", count,
         " elements, but is ", type_name(view.scalar_type), " of shape ", view.shape(),
         "; pass what tcgemm.pack_weight makes.");
  return reinterpret_cast<const float*>(view.address);
}

std::int32_t scalar_type(ScaleType type) {
  return scalar_type_of(type == ScaleType::f32    ? DType::f32
                        : type == ScaleType::f16  ? DType::f16
                        : type == ScaleType::bf16 ? DType::bf16
                                                  : DType::u8);
}

}  // namespace

PackWeightArguments unbox_pack_weight(std::uint64_t* stack) {
  StackReader reader(stack);
  PackWeightArguments arguments;
  arguments.w = reader.tensor();
  arguments.book = reader.optional_tensor();
  arguments.global_scale = reader.optional_tensor();
  arguments.format = reader.string();
  arguments.group_size = reader.integer();
  arguments.limit = reader.real();
  arguments.scale_type = reader.string();
  arguments.zero_points = reader.flag();
  arguments.least_error = reader.flag();
  return arguments;
}

PackWeightResults pack_weight(const PackWeightArguments& arguments, Target target,
                              PackWeightBackend backend) {
  const View w = view_of(kName, "w", arguments.w);
  if (target == Target::none) {
    refuse_device(kName, w);
    refuse_dtype(kName, w);
  }
  check_weight(w);
  Packing task;
  task.w = {w.address, w.dtype, w.strides[0], w.strides[1]};
  task.n = w.sizes[0];
  task.k = w.sizes[1];
  task.group = arguments.group_size;
  PackRules& rules = task.rules;
  rules.format = format_of(arguments.format);
  rules.scale_type = scale_type_of(arguments.scale_type);
  rules.zero_points = arguments.zero_points;
  rules.least_error = arguments.least_error;
  rules.limit = static_cast<float>(arguments.limit);
  const bool four_bits = bits(rules.format) == 4;
  const bool whole_row = task.group == task.k;
  if (task.group < 1 || task.k % task.group != 0 || (four_bits && task.group % 2 && !whole_row))
    fail(kName, ": group_size is ", task.group, ", but must divide the ", task.k, " columns of w",
         four_bits ? " and be even, unless it is a whole row" : "", "; pass a size that does.");
  if (!(rules.limit > 0 && std::isfinite(rules.limit)))
    fail(kName, ": limit is ", arguments.limit, ", but the scale is amax / limit; pass a positive ",
         "number.");
  if (rules.zero_points && rules.format != WeightFormat::int4)
    fail(kName, ": zero_points is True, but format is \"", arguments.format,
         "\", and only \"int4\" has them; leave it out.");
  task.book = numbers(view_of(kName, "book", arguments.book), 3 * packing::kTableEntries, w);
  if ((task.book != nullptr) != (rules.format == WeightFormat::table4))
    fail(kName, ": book is ", task.book ? "given" : "None", ", but format is \"", arguments.format,
         "\"; \"table4\" has a book, and the others have none.");
  task.global_scale = numbers(view_of(kName, "global_scale", arguments.global_scale), 1, w);

  const std::int64_t codes[] = {task.n, task.row_bytes()};
  const std::int64_t groups[] = {task.n, task.groups_in_row()};
  const std::int64_t none = 0;
  const std::int32_t u8 = scalar_type_of(DType::u8);
  PackWeightResults results{allocate("the codes", {codes, 2}, u8, w),
                            allocate("the scales", {groups, 2}, scalar_type(rules.scale_type), w),
                            rules.zero_points ? allocate("the zero points", {groups, 2}, u8, w)
                                              : allocate("no zero points", {&none, 1}, u8, w)};
  task.codes = static_cast<std::uint8_t*>(data(results.codes));
  task.scales = data(results.scales);
  if (rules.zero_points) task.zero_points = static_cast<std::uint8_t*>(data(results.zero_points));
  if (task.n > 0) backend(task, w);
  return results;
}

}  // namespace tcgemm::ops
