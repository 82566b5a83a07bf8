// The checks that concern dtypes, devices and options.
//
//   operands                       accumulator     result (the first is the default)
//   f16, bf16, f32 (both alike)    f32 (f16: f16)  the operands', f16, bf16, f32, e4m3, e5m2
//   f64                            f64             f64
//   e4m3, e5m2 (in any mix)        f32             bf16, f16, f32, e4m3, e5m2
//   s8, u8 (in any mix)            s32             s32, f16, bf16, f32, s8
#include <charconv>
#include <cmath>

#include "ops/check.h"

namespace tcgemm::ops {
namespace {

void check_devices(Op op, const CheckedGemm& g) {
  const View& a = g.operand[A].view;
  for (const CheckedOperand& operand : g.operand) {
    const View& view = operand.view;
    if (!view || view.same_device(a)) continue;
    fail(name(op), ": ", view.name, " is on ", device_name(view), ", but ", a.name, " is on ",
         device_name(a), "; all tensors of a call must be on one device: move ", view.name,
         " with .to(\"", device_name(a), "\").");
  }
}

void check_operand_types(Op op, const CheckedGemm& g) {
  const View& a = g.operand[A].view;
  const View& b = g.operand[B].view;
  for (const View* view : {&a, &b}) {
    if (view->known && view->dtype != DType::s32) continue;
    fail(name(op), ": ", view->name, " is ", type_name(view->type),
         ", but a product takes torch.float16, torch.bfloat16, torch.float32, torch.float64, "
         "torch.float8_e4m3fn, torch.float8_e5m2, torch.int8 and torch.uint8; convert both "
         "operands with .to(...).");
  }
  const bool mix = (is_fp8(a.dtype) && is_fp8(b.dtype)) || (is_int8(a.dtype) && is_int8(b.dtype));
  if (a.dtype != b.dtype && !mix)
    fail(name(op), ": ", b.name, " is ", type_name(b.type), ", but ", a.name, " is ",
         type_name(a.type),
         "; both must have one dtype (the two of float8 may be mixed, and so may int8 and uint8): "
         "convert one of them with .to(...).");
}

// Fills in what is multiplied. The words for f32 mean nothing to operands that are exact as they
// are, so that a setting for a whole model does not fail; fp8 has words of its own.
void check_precision(Op op, const Arguments& arguments, CheckedGemm& g) {
  const View& a = g.operand[A].view;
  const bool fp8 = is_fp8(a.dtype);
  const bool f32 = a.dtype == DType::f32;
  g.input_a = a.dtype;
  g.input_b = g.operand[B].view.dtype;
  g.promote = fp8;
  if (!arguments.precision && !f32) return;
  const std::string_view word =
      arguments.precision ? std::string_view(*arguments.precision) : "highest";
  if (fp8) {
    g.promote = word != "fast";
    if (word == "fast" || word == "promoted") return;
    fail(name(op), ": precision is \"", word,
         "\", but fp8 products are \"promoted\" (sums of 128 of them are added in float32) or "
         "\"fast\"; pass one of these, or None for \"promoted\".");
  }
  if (word == "highest") return;
  if (word != "high" && word != "medium")
    fail(name(op), ": precision is \"", word, "\", but for ", type_name(a.type),
         " there are \"highest\", \"high\" and \"medium\"; pass one of these, or None.");
  if (f32) g.input_a = g.input_b = word == "high" ? DType::tf32 : DType::bf16;
}

bool gives(DType input, DType out) {
  if (input == DType::f64 || out == DType::f64) return input == out;
  if (out == DType::f16 || out == DType::bf16 || out == DType::f32) return true;
  return is_int8(input) ? out == DType::s32 || out == DType::s8 : is_fp8(out);
}

const char* results(DType input) {
  if (input == DType::f64) return "torch.float64";
  if (is_int8(input))
    return "torch.int32, torch.float16, torch.bfloat16, torch.float32 or torch.int8";
  return "torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn or torch.float8_e5m2";
}

void check_result_type(Op op, const Arguments& arguments, CheckedGemm& g) {
  const DType input = g.operand[A].view.dtype;
  g.out_dtype = is_fp8(input) ? DType::bf16 : is_int8(input) ? DType::s32 : input;
  if (!arguments.out_dtype) return;
  const bool known = dtype_of(*arguments.out_dtype, g.out_dtype);
  if (known && gives(input, g.out_dtype)) return;
  fail(name(op), ": out_dtype is ", type_name(*arguments.out_dtype), ", but operands of ",
       type_name(input), " give ", results(input),
       "; ask for one of these, or leave out_dtype away.");
}

void check_accumulator(Op op, const Arguments& arguments, CheckedGemm& g) {
  const DType input = g.operand[A].view.dtype;
  g.accumulator = input == DType::f64 ? DType::f64 : is_int8(input) ? DType::s32 : DType::f32;
  if (!arguments.acc_dtype) return;
  DType asked = DType::f64;
  const bool known = dtype_of(*arguments.acc_dtype, asked);
  const bool half = asked == DType::f16 && input == DType::f16;
  if (!known || (asked != g.accumulator && !half))
    fail(name(op), ": acc_dtype is ", type_name(*arguments.acc_dtype), ", but products of ",
         type_name(input), " are accumulated in ", type_name(g.accumulator),
         input == DType::f16 ? " or torch.float16" : "",
         "; ask for that, or leave acc_dtype away.");
  g.accumulator = asked;
}

// Integer results are added to in integers; everything else takes what f32 (f64) holds exactly.
void check_addend_types(Op op, const CheckedGemm& g) {
  const bool f64 = g.out_dtype == DType::f64;
  const bool s32 = g.out_dtype == DType::s32;
  for (const Slot slot : {C, Bias, Residual}) {
    const View& view = g.operand[slot].view;
    if (!view) continue;
    const DType type = view.dtype;
    const bool real = type == DType::f16 || type == DType::bf16 || type == DType::f32;
    if (view.known && (s32 ? type == DType::s32 : real || (f64 && type == DType::f64))) continue;
    fail(name(op), ": ", view.name, " is ", type_name(view.type), ", but it must be ",
         s32 ? "torch.int32" : "torch.float16, torch.bfloat16 or torch.float32",
         f64 ? ", or torch.float64" : "", " when the result is ", type_name(g.out_dtype),
         "; convert it with .to(...), or pass another out_dtype.");
  }
}

void check_activation(Op op, const Arguments& arguments, CheckedGemm& g) {
  g.activation = Activation::none;
  if (!arguments.activation) return;
  for (int i = 1; i < kActivations; ++i) {
    g.activation = static_cast<Activation>(i);
    if (*arguments.activation == name(g.activation)) return;
  }
  fail(name(op), ": activation is \"", *arguments.activation,
       "\", but there are \"relu\", \"gelu\", \"gelu_tanh\" and \"silu\"; pass one of these, or "
       "None.");
}

void check_scale_types(Op op, const CheckedGemm& g) {
  const View& a = g.operand[A].view;
  for (const Slot slot : {ScaleA, ScaleB, ScaleOut, ZeroA, ZeroB}) {
    const View& view = g.operand[slot].view;
    if (!view) continue;
    const bool zero = slot == ZeroA || slot == ZeroB;
    const DType type = zero ? DType::s32 : DType::f32;
    if (zero && !is_int8(a.dtype))
      fail(name(op), ": ", view.name, " is given, but only torch.int8 and torch.uint8 operands ",
           "have zero points, and ", a.name, " is ", type_name(a.type), "; leave ", view.name,
           " away.");
    if (!view.known || view.dtype != type)
      fail(name(op), ": ", view.name, " is ", type_name(view.type), ", but ",
           zero ? "zero points" : "scales", " are ", type_name(type), "; convert it with .to(",
           type_name(type), ").");
  }
}

std::string number(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

// An s32 result is computed modulo 2^32, with nothing in it that would have to be rounded.
void check_integers(Op op, const Arguments& arguments, const CheckedGemm& g) {
  if (g.out_dtype != DType::s32) return;
  constexpr const char* kWhy = ", but a torch.int32 result is computed in integers alone; ";
  constexpr const char* kOther = "pass an out_dtype such as torch.bfloat16.";
  const auto whole = [](double x) { return x >= -0x1p31 && x < 0x1p31 && x == std::trunc(x); };
  if (!whole(arguments.alpha))
    fail(name(op), ": alpha is ", number(arguments.alpha), kWhy, "pass a whole number, or ",
         kOther);
  if (g.operand[C].view && !whole(arguments.beta))
    fail(name(op), ": beta is ", number(arguments.beta), kWhy, "pass a whole number, or ", kOther);
  if (g.activation != Activation::none && g.activation != Activation::relu)
    fail(name(op), ": activation is \"", name(g.activation), "\"", kWhy,
         "there is \"relu\" for it, or ", kOther);
  for (const Slot slot : {ScaleA, ScaleB, ScaleOut})
    if (const View& view = g.operand[slot].view)
      fail(name(op), ": ", view.name, " is given", kWhy, "leave it away, or ", kOther);
  if (op == Op::scaled_amax)
    fail(name(op), ": amax is asked for", kWhy, "leave it away, or ", kOther);
}

}  // namespace

void check_types(Op op, const Arguments& arguments, CheckedGemm& g) {
  check_devices(op, g);
  check_operand_types(op, g);
  check_precision(op, arguments, g);
  check_result_type(op, arguments, g);
  check_accumulator(op, arguments, g);
  check_activation(op, arguments, g);
  check_scale_types(op, g);
  check_integers(op, arguments, g);
  check_addend_types(op, g);
}

}  // namespace tcgemm::ops
