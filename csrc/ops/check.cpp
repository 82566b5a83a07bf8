// The checks that concern dtypes, devices and options; shapes are in check_shapes.cpp, the tensor
// to write into in check_out.cpp.
#include "ops/check.h"

namespace tcgemm::ops {
namespace {

constexpr const char* kPlanned = " (fp8, int8, tf32 and 2:4 sparse operands are planned.)";

void check_devices(Op op, const Geometry& g) {
  const View& a = g.operand[A].view;
  for (const Operand& operand : g.operand) {
    const View& view = operand.view;
    if (!view || view.same_device(a)) continue;
    fail(name(op), ": ", view.name, " is on ", device_name(view), ", but ", a.name, " is on ",
         device_name(a), "; all tensors of a call must be on one device: move ", view.name,
         " with .to(\"", device_name(a), "\").");
  }
}

void check_operand_types(Op op, const Geometry& g, Target target) {
  const View& a = g.operand[A].view;
  const View& b = g.operand[B].view;
  for (const View* view : {&a, &b}) {
    const bool half = view->dtype == DType::f16 || view->dtype == DType::bf16;
    if (view->known && (half || target != Target::cuda)) continue;
    fail(name(op), ": ", view->name, " is ", type_name(view->type),
         target == Target::cuda
             ? ", but on CUDA a product takes torch.float16 and torch.bfloat16 (on the CPU also "
               "torch.float32 and torch.float64); convert both operands with .to(...), or move "
               "them to the CPU."
             : ", but a product takes torch.float16 and torch.bfloat16, and on the CPU also "
               "torch.float32 and torch.float64; convert both operands with .to(...).",
         kPlanned);
  }
  if (a.dtype != b.dtype)
    fail(name(op), ": ", b.name, " is ", type_name(b.type), ", but ", a.name, " is ",
         type_name(a.type), "; both must have one dtype: convert one of them with .to(...).");
}

void check_addend_types(Op op, const Geometry& g) {
  const bool f64 = g.operand[A].view.dtype == DType::f64;
  for (const Slot slot : {C, Bias, Residual}) {
    const View& view = g.operand[slot].view;
    if (!view || (view.known && (f64 || view.dtype != DType::f64))) continue;
    fail(name(op), ": ", view.name, " is ", type_name(view.type), ", but it must be ",
         "torch.float16, torch.bfloat16 or torch.float32", f64 ? ", or torch.float64" : "",
         " when ", g.operand[A].view.name, " is ", type_name(g.operand[A].view.type),
         "; convert it with .to(...).");
  }
}

void check_result_type(Op op, const Arguments& arguments, Geometry& g) {
  const DType input = g.operand[A].view.dtype;
  g.out_dtype = input;
  if (!arguments.out_dtype) return;
  const bool known = dtype_of(*arguments.out_dtype, g.out_dtype);
  if (known && (g.out_dtype == DType::f64) == (input == DType::f64)) return;
  fail(name(op), ": out_dtype is ", type_name(*arguments.out_dtype), ", but operands of ",
       type_name(input), " give ",
       input == DType::f64 ? "torch.float64" : "torch.float16, torch.bfloat16 or torch.float32",
       "; ask for one of these, or leave out_dtype away.");
}

void check_accumulator(Op op, const Arguments& arguments, Geometry& g) {
  const DType input = g.operand[A].view.dtype;
  g.accumulator = input == DType::f64 ? DType::f64 : DType::f32;
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

void check_activation(Op op, const Arguments& arguments, Geometry& g) {
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

}  // namespace

const char* name(Op op) {
  // The general product stands behind every public function, so its errors name none of them.
  constexpr const char* names[] = {"tcgemm.mm",           "tcgemm.bmm",    "tcgemm.matmul",
                                   "tcgemm.addmm",        "tcgemm.linear", "tcgemm",
                                   "tcgemm.check_layout", "tcgemm.explain"};
  return names[static_cast<int>(op)];
}

void read_tensors(Op op, const Arguments& arguments, Geometry& g) {
  const bool linear = op == Op::linear;
  g.operand[A].view = read(name(op), linear ? "x" : "a", arguments.a);
  g.operand[B].view = read(name(op), linear ? "weight" : "b", arguments.b);
  g.operand[C].view = read(name(op), "c", arguments.c);
  g.operand[Bias].view = read(name(op), "bias", arguments.bias);
  g.operand[Residual].view = read(name(op), "residual", arguments.residual);
  g.operand[Out].view = read(name(op), "out", arguments.out, true);
}

void check_types(Op op, const Arguments& arguments, Target target, Geometry& g) {
  check_devices(op, g);
  check_operand_types(op, g, target);
  check_addend_types(op, g);
  check_result_type(op, arguments, g);
  check_accumulator(op, arguments, g);
  check_activation(op, arguments, g);
}

void check(Op op, const Arguments& arguments, Target target, Geometry& g) {
  read_tensors(op, arguments, g);
  check_types(op, arguments, target, g);
  check_product(op, g, target);
  check_epilogue(op, g);
  if (g.operand[Out].view) check_out(op, g);
}

}  // namespace tcgemm::ops
