// The checks of dtypes, devices and options. core/dtype_rules.h has the table of dtypes.
#include <cmath>

#include "core/dtype_rules.h"
#include "ops/activation.h"
#include "ops/check/check.h"

namespace tcgemm::ops {
namespace {

void check_devices(const Operator& op, const CheckedGemm& checked) {
  const View& a = checked[Slot::a].view;
  for (const CheckedOperand& operand : checked.operands) {
    const View& view = operand.view;
    if (!view || view.same_device(a)) continue;
    const std::string device = device_name(a);
    const std::string remedy =
        is_meta(view) ? std::string(view.name) + " has no values on meta; make it on " + device +
                            ", or load its values with load_state_dict(..., assign=True)"
                      : "move " + std::string(view.name) + " with .to(\"" + device + "\")";
    fail(name(op), ": ", view.name, " is on ", device_name(view), ", but ", a.name, " is on ",
         device, "; all tensors of a call must be on one device: ", remedy, ".");
  }
}

void check_operand_types(const Operator& op, const CheckedGemm& checked) {
  const View& a = checked[Slot::a].view;
  const View& b = checked[Slot::b].view;
  for (const View* view : {&a, &b}) {
    if (view->has_dtype && view->dtype != DType::s32) continue;
    fail(name(op), ": ", view->name, " is ", type_name(*view),
         ", but a product takes torch.float16, torch.bfloat16, torch.float32, torch.float64, "
         "torch.float8_e4m3fn, torch.float8_e5m2, torch.int8 and torch.uint8; convert both "
         "operands with .to(...).");
  }
  const bool mix = (is_fp8(a.dtype) && is_fp8(b.dtype)) || (is_int8(a.dtype) && is_int8(b.dtype)) ||
                   (is_int4(a.dtype) && is_int4(b.dtype));
  if (a.dtype != b.dtype && !mix)
    fail(name(op), ": ", b.name, " is ", type_name(b), ", but ", a.name, " is ", type_name(a),
         "; both must have one dtype (the two of float8 may be mixed, and so may int8 and uint8): "
         "convert one of them with .to(...).");
}

// Sets the types that tensor cores multiply. f16, bf16, f64 and int8 operands accept the precisions
// of f32 and ignore them, so that one setting for a whole model does not fail. fp8 has its own.
void check_precision(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  const View& a = checked[Slot::a].view;
  const bool fp8 = is_fp8(a.dtype);
  const bool f32 = a.dtype == DType::f32;
  checked.input_a = a.dtype;
  checked.input_b = checked[Slot::b].view.dtype;
  checked.promote = fp8;
  if (!arguments.precision && !f32) return;
  const std::string_view precision =
      arguments.precision ? std::string_view(*arguments.precision) : "highest";
  if (fp8) {
    checked.promote = precision != "fast";
    if (precision == "fast" || precision == "promoted") return;
    fail(name(op), ": precision is \"", precision,
         "\", but fp8 products are \"promoted\" (sums of 128 of them are added in float32) or "
         "\"fast\"; pass one of these, or None for \"promoted\".");
  }
  if (precision == "highest") return;
  // tcgemm.nn.Linear passes "prepared" if its weight has no terms. No error names this word.
  if (precision == "prepared") {
    checked.as_prepared = f32;
    return;
  }
  if (precision != "high" && precision != "medium")
    fail(name(op), ": precision is \"", precision, "\", but for ", type_name(a),
         " there are \"highest\", \"high\" and \"medium\"; pass one of these, or None.");
  if (f32) checked.input_a = checked.input_b = precision == "high" ? DType::tf32 : DType::bf16;
}

const char* result_dtypes(DType input) {
  if (input == DType::f64) return "torch.float64";
  if (is_integer(input))
    return "torch.int32, torch.float16, torch.bfloat16, torch.float32 or torch.int8";
  return "torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn or torch.float8_e5m2";
}

// The dtype of the out that a product is added to.
DType added_to(const Operator& op, const CheckedGemm& checked) {
  const View& out = checked[Slot::out].view;
  const DType input = checked[Slot::a].view.dtype;
  const bool is_float =
      out.dtype == DType::f16 || out.dtype == DType::bf16 || out.dtype == DType::f32;
  if (out.has_dtype && (input == DType::f64 ? out.dtype == DType::f64 : is_float)) return out.dtype;
  fail(name(op), ": out is ", type_name(out), ", but with accumulate=True and operands of ",
       type_name(input), " it must be ",
       input == DType::f64 ? "torch.float64" : "torch.float16, torch.bfloat16 or torch.float32",
       "; pass an out of such a dtype.");
}

void check_result_type(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  const DType input = checked[Slot::a].view.dtype;
  checked.out_dtype = arguments.accumulate ? added_to(op, checked) : default_result(input);
  if (!arguments.out_dtype) return;
  const bool is_dtype = dtype_of(*arguments.out_dtype, checked.out_dtype);
  if (is_dtype && can_return(input, checked.out_dtype)) return;
  fail(name(op), ": out_dtype is ", type_name(*arguments.out_dtype), ", but operands of ",
       type_name(input), " give ", result_dtypes(input),
       "; ask for one of these, or leave out_dtype out.");
}

void check_accumulator(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  const DType input = checked[Slot::a].view.dtype;
  checked.accumulator = default_accumulator(input);
  if (!arguments.acc_dtype) return;
  DType requested = DType::f64;
  const bool is_dtype = dtype_of(*arguments.acc_dtype, requested);
  if (!is_dtype || !can_accumulate(input, requested))
    fail(name(op), ": acc_dtype is ", type_name(*arguments.acc_dtype), ", but products of ",
         type_name(input), " are accumulated in ", type_name(checked.accumulator),
         input == DType::f16 ? " or torch.float16" : "", "; ask for that, or leave acc_dtype out.");
  checked.accumulator = requested;
}

// c, bias and residual are s32 for an s32 result, else a dtype that f32 (f64) holds exactly.
void check_addend_types(const Operator& op, const CheckedGemm& checked) {
  const bool f64 = checked.out_dtype == DType::f64;
  const bool s32 = checked.out_dtype == DType::s32;
  for (const Slot slot : kAddends) {
    const View& view = checked[slot].view;
    if (!view) continue;
    const DType type = view.dtype;
    const bool is_float = type == DType::f16 || type == DType::bf16 || type == DType::f32;
    if (view.has_dtype && (s32 ? type == DType::s32 : is_float || (f64 && type == DType::f64)))
      continue;
    fail(name(op), ": ", view.name, " is ", type_name(view), ", but it must be ",
         s32 ? "torch.int32" : "torch.float16, torch.bfloat16 or torch.float32",
         f64 ? ", or torch.float64" : "", " when the result is ", type_name(checked.out_dtype),
         "; convert it with .to(...), or pass another out_dtype.");
  }
}

// Scales and zero points.
void check_dtype(const Operator& op, const View& view, DType type, const char* kind) {
  if (view.has_dtype && view.dtype == type) return;
  fail(name(op), ": ", view.name, " is ", type_name(view), ", but ", kind, " are ", type_name(type),
       "; convert it with .to(", type_name(type), ").");
}

void check_scale_types(const Operator& op, const CheckedGemm& checked) {
  const View& a = checked[Slot::a].view;
  for (const Slot slot : kScales)
    if (const View& view = checked[slot].view) check_dtype(op, view, DType::f32, "scales");
  for (const Slot slot : kZeroPoints) {
    const View& view = checked[slot].view;
    if (!view) continue;
    if (!is_integer(a.dtype))
      fail(name(op), ": ", view.name, " is given, but only torch.int8 and torch.uint8 operands ",
           "have zero points, and ", a.name, " is ", type_name(a), "; leave ", view.name, " out.");
    check_dtype(op, view, DType::s32, "zero points");
  }
}

// An s32 result is computed modulo 2^32, so no step of its epilogue may round.
void check_integers(const Operator& op, const Arguments& arguments, const CheckedGemm& checked) {
  if (checked.out_dtype != DType::s32) return;
  constexpr const char* kWhy = ", but a torch.int32 result is computed in integers alone; ";
  constexpr const char* kRemedy = "pass an out_dtype such as torch.bfloat16.";
  const auto is_int32 = [](double x) { return x >= -0x1p31 && x < 0x1p31 && x == std::trunc(x); };
  if (!is_int32(arguments.alpha))
    fail(name(op), ": alpha is ", arguments.alpha, kWhy, "pass a whole number, or ", kRemedy);
  if (checked[Slot::c].view && !is_int32(arguments.beta))
    fail(name(op), ": beta is ", arguments.beta, kWhy, "pass a whole number, or ", kRemedy);
  if (is_transcendental(checked.activation))
    fail(name(op), ": activation is \"", name(checked.activation), "\"", kWhy,
         "there is \"relu\" for it, or ", kRemedy);
  for (const Slot slot : kScales)
    if (const View& view = checked[slot].view)
      fail(name(op), ": ", view.name, " is given", kWhy, "leave it out, or ", kRemedy);
  if (op.has(kAmax) || arguments.amax)
    fail(name(op), ": amax is asked for", kWhy, "leave it out, or ", kRemedy);
}

}  // namespace

void check_types(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  check_devices(op, checked);
  if (shapes_of(op, checked) == Shapes::grouped) check_grouped_types(op, checked);
  check_operand_types(op, checked);
  check_precision(op, arguments, checked);
  check_result_type(op, arguments, checked);
  check_accumulator(op, arguments, checked);
  checked.activation = arguments.activation
                           ? activation_of(name(op), *arguments.activation, ", or None.")
                           : Activation::none;
  check_scale_types(op, checked);
  check_integers(op, arguments, checked);
  check_addend_types(op, checked);
}

}  // namespace tcgemm::ops
