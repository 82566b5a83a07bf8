// The checks of _pack_weight.
#include <cmath>

#include "ops/operators.h"
#include "ops/stack_reader.h"

namespace tcgemm::ops {
namespace {

WeightFormat format_of(const char* op, const std::string& text) {
  for (int i = 1; i < kWeightFormats; ++i)
    if (text == name(static_cast<WeightFormat>(i))) return static_cast<WeightFormat>(i);
  fail(op, ": format is \"", text,
       "\", but there are \"int4\", \"table4\", \"int8\" and \"e4m3\"; pass one of these.");
}

ScaleType scale_type_of(const char* op, const std::string& text) {
  for (int i = 0; i < kScaleTypes; ++i)
    if (text == name(static_cast<ScaleType>(i))) return static_cast<ScaleType>(i);
  fail(op, ": scale_type is \"", text,
       "\", but there are \"float32\", \"float16\", \"bfloat16\", \"e4m3\" and \"e8m0\"; pass one "
       "of these.");
}

void check_weight(const char* op, const View& w) {
  const bool is_float =
      w.has_dtype && (w.dtype == DType::f16 || w.dtype == DType::bf16 || w.dtype == DType::f32);
  if (is_float && w.dims == 2) return;
  fail(op, ": w must be a matrix (N, K) of torch.float16, torch.bfloat16 or torch.float32, but ",
       "is ", type_name(w.scalar_type), " of shape ", w.shape(),
       "; pack one matrix at a time, and convert it with .to(...).");
}

// A contiguous f32 tensor of so many elements, or null if it is not given.
const float* numbers(const char* op, const View& view, std::int64_t count, const View& w) {
  if (!view) return nullptr;
  if (!view.same_device(w))
    fail(op, ": ", view.name, " is on ", device_name(view), ", but w is on ", device_name(w),
         "; move it with .to(w.device).");
  if (!view.has_dtype || view.dtype != DType::f32 || view.elements() != count ||
      !is_contiguous(view))
    fail(op, ": ", view.name, " must be contiguous torch.float32 of ", count, " elements, but is ",
         type_name(view.scalar_type), " of shape ", view.shape(),
         "; pass what tcgemm.pack_weight makes.");
  return reinterpret_cast<const float*>(view.address);
}

}  // namespace

Results pack_weight(const Call& call) {
  const char* const op = name(call.op);
  StackReader reader(call.stack);
  const TensorHandle tensor = reader.tensor();
  const TensorHandle book = reader.optional_tensor();
  const TensorHandle global_scale = reader.optional_tensor();
  const std::string format = reader.string();
  Packing task;
  PackRules& rules = task.rules;
  task.group = reader.integer();
  const double limit = reader.real();
  const std::string scale_type = reader.string();
  rules.zero_points = reader.flag();
  rules.least_error = reader.flag();
  const View w = view_of(op, "w", tensor);
  check_backend(call.backend.target, op, {w});
  check_weight(op, w);
  task.w = {w.address, w.dtype, w.strides[0], w.strides[1]};
  task.n = w.sizes[0];
  task.k = w.sizes[1];
  rules.format = format_of(op, format);
  rules.scale_type = scale_type_of(op, scale_type);
  rules.limit = static_cast<float>(limit);
  const bool four_bits = bits(rules.format) == 4;
  const bool whole_row = task.group == task.k;
  if (task.group < 1 || task.k % task.group != 0 || (four_bits && task.group % 2 && !whole_row))
    fail(op, ": group_size is ", task.group, ", but must divide the ", task.k, " columns of w",
         four_bits ? " and be even, unless it is a whole row" : "", "; pass a size that does.");
  if (!(rules.limit > 0 && std::isfinite(rules.limit)))
    fail(op, ": limit is ", limit, ", but the scale is amax / limit; pass a positive number.");
  if (rules.zero_points && rules.format != WeightFormat::int4)
    fail(op, ": zero_points is True, but format is \"", format,
         "\", and only \"int4\" has them; leave it out.");
  task.book = numbers(op, view_of(op, "book", book), 3 * packing::kTableEntries, w);
  if (bool(book) != (rules.format == WeightFormat::table4))  // a book on meta has no address
    fail(op, ": book is ", book ? "given" : "None", ", but format is \"", format,
         "\"; \"table4\" has a book, and the others have none.");
  task.global_scale = numbers(op, view_of(op, "global_scale", global_scale), 1, w);

  const std::int64_t codes[] = {task.n, task.row_bytes()};
  const std::int64_t groups[] = {task.n, task.groups_in_row()};
  const std::int64_t none = 0;
  const std::int32_t u8 = scalar_type_of(DType::u8);
  Results results{
      allocate("the codes", {codes, 2}, u8, w),
      allocate("the scales", {groups, 2}, scalar_type_of(stored_dtype(rules.scale_type)), w),
      rules.zero_points ? allocate("the zero points", {groups, 2}, u8, w)
                        : allocate("no zero points", {&none, 1}, u8, w)};
  task.codes = static_cast<std::uint8_t*>(data(results[0]));
  task.scales = data(results[1]);
  if (rules.zero_points) task.zero_points = static_cast<std::uint8_t*>(data(results[2]));
  if (task.n > 0) call.backend.pack_weight(task, w);
  return results;
}

}  // namespace tcgemm::ops
