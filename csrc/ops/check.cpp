// The order of the checks, and the names of operators and tensors in their errors. The checks are
// defined in check_types.cpp (dtypes, devices, options), check_shapes.cpp, check_scales.cpp (scales
// and zero points), check_prepacked.cpp, check_sparse.cpp (2:4 metadata) and check_out.cpp.
#include "ops/check.h"

namespace tcgemm::ops {
namespace {

// Throws the reason why no backend computes a call with these tensors.
[[noreturn]] void refuse(Op op, const CheckedGemm& checked) {
  for (const CheckedOperand& operand : checked.operand) refuse_device(name(op), operand.view);
  const View* view = &checked.operand[A].view;
  for (const CheckedOperand& operand : checked.operand)
    if (operand.view && !operand.view.known) view = &operand.view;
  refuse_dtype(name(op), *view);
}

}  // namespace

const char* name(Op op) {
  // Every public function can call the general GEMMs, so their errors name no function.
  constexpr const char* names[] = {
      "tcgemm.mm", "tcgemm.bmm", "tcgemm.matmul", "tcgemm.addmm",        "tcgemm.linear",
      "tcgemm",    "tcgemm",     "tcgemm",        "tcgemm.check_layout", "tcgemm.explain"};
  return names[static_cast<int>(op)];
}

void read_tensors(Op op, const Arguments& arguments, CheckedGemm& checked) {
  const auto optional = [&](Slot slot, const char* argument, const TensorHandle& tensor) {
    if (tensor) checked.operand[slot].view = view_of(name(op), argument, tensor, slot == Out);
  };
  const bool linear = op == Op::linear;
  checked.operand[A].view = view_of(name(op), linear ? "x" : "a", arguments.a);
  checked.operand[B].view = view_of(name(op), linear ? "weight" : "b", arguments.b);
  optional(C, "c", arguments.c);
  optional(Bias, "bias", arguments.bias);
  optional(Residual, "residual", arguments.residual);
  optional(ScaleA, "scale_a", arguments.scale_a);
  optional(ScaleB, "scale_b", arguments.scale_b);
  optional(ZeroA, "zero_a", arguments.zero_a);
  optional(ZeroB, "zero_b", arguments.zero_b);
  optional(ScaleOut, "scale_out", arguments.scale_out);
  optional(PreparedB, "prepared_b", arguments.prepared_b);
  optional(SparseA, "sparse_a", arguments.sparse_a);
  optional(SparseB, "sparse_b", arguments.sparse_b);
  optional(Out, "out", arguments.out);
}

void check(Op op, const Arguments& arguments, Target target, CheckedGemm& checked) {
  read_tensors(op, arguments, checked);  // rejects sparse layouts
  if (target == Target::none) refuse(op, checked);
  check_types(op, arguments, checked);
  check_single_sparse(op, checked);
  check_operand_shapes(op, checked, target);
  check_epilogue_shapes(op, checked);
  check_scales(op, checked);
  check_prepacked(op, checked);
  check_sparse(op, arguments, target, checked);
  if (checked.operand[Out].view) check_out(op, checked);
}

}  // namespace tcgemm::ops
