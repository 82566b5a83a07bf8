// The order of the checks, and the names of tensors in their errors. The checks are
// defined in check_packed_weight.cpp, check_subbyte.cpp (int4 and bits),
// check_types.cpp (dtypes, devices, options), check_shapes.cpp, check_grouped.cpp, check_scales.cpp
// (scales and zero points), check_terms.cpp, check_sparse.cpp (2:4 metadata) and check_out.cpp.
#include "ops/check/check.h"

namespace tcgemm::ops {
namespace {

// Throws the reason why no backend computes a call with these tensors, unless one is on meta.
void refuse(const Operator& op, const CheckedGemm& checked) {
  for (const CheckedOperand& operand : checked.operands)
    if (operand.view && is_meta(operand.view)) return;
  for (const CheckedOperand& operand : checked.operands) refuse_device(name(op), operand.view);
  const View* view = &checked[Slot::a].view;
  for (const CheckedOperand& operand : checked.operands)
    if (operand.view && !operand.view.has_dtype) view = &operand.view;
  refuse_dtype(name(op), *view);
}

const char* argument_name(const Operator& op, Slot slot) {
  if (op.shapes == Shapes::linear && slot == Slot::a) return "x";
  if (op.shapes == Shapes::linear && slot == Slot::b) return "weight";
  return name(slot);
}

}  // namespace

void read_tensors(const Operator& op, const Arguments& arguments, CheckedGemm& checked) {
  for (const Slot slot : kAllSlots)
    if (const TensorHandle& tensor = arguments[slot])
      checked[slot].view =
          view_of(name(op), argument_name(op, slot), tensor, operand_row(slot).written);
}

void check(const Operator& op, const Arguments& arguments, Target target, CheckedGemm& checked) {
  read_tensors(op, arguments, checked);  // rejects sparse layouts
  if (target == Target::none) refuse(op, checked);
  if (checked[Slot::offs].view) check_description(op, arguments, checked);
  if (checked[Slot::packed_b].view) bind_packed_weight(op, arguments, checked);
  if (arguments.types) bind_subbyte(op, arguments, checked);
  if (arguments.accumulate) check_accumulate(op, arguments, checked);
  check_types(op, arguments, checked);
  check_single_sparse(op, checked);
  check_operand_shapes(op, checked, target);
  if (checked[Slot::offs].view) check_offs(op, arguments, checked);
  check_epilogue_shapes(op, checked);
  check_scales(op, checked);
  check_terms(op, checked);
  check_sparse(op, arguments, target, checked);
  if (checked[Slot::out].view) check_out(op, arguments, checked);
}

}  // namespace tcgemm::ops
