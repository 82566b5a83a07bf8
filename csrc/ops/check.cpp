// The order of the checks, and the words for the tensors of a call. The checks themselves:
// check_types.cpp (dtypes, devices, options), check_shapes.cpp, check_scales.cpp (what multiplies
// or is subtracted), check_prepacked.cpp (parts that were made before), check_sparse.cpp (metadata),
// check_out.cpp (the tensor to write into).
#include "ops/check.h"

namespace tcgemm::ops {

const char* name(Op op) {
  // The general products stand behind every public function, so their errors name none of them.
  constexpr const char* names[] = {
      "tcgemm.mm", "tcgemm.bmm", "tcgemm.matmul", "tcgemm.addmm",        "tcgemm.linear",
      "tcgemm",    "tcgemm",     "tcgemm",        "tcgemm.check_layout", "tcgemm.explain"};
  return names[static_cast<int>(op)];
}

void read_tensors(Op op, const Arguments& arguments, CheckedGemm& g) {
  const auto optional = [&](Slot slot, const char* word, const TensorHandle& tensor) {
    if (tensor) g.operand[slot].view = view_of(name(op), word, tensor, slot == Out);
  };
  const bool linear = op == Op::linear;
  g.operand[A].view = view_of(name(op), linear ? "x" : "a", arguments.a);
  g.operand[B].view = view_of(name(op), linear ? "weight" : "b", arguments.b);
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

void check(Op op, const Arguments& arguments, Target target, CheckedGemm& g) {
  read_tensors(op, arguments, g);
  check_types(op, arguments, g);
  check_one_sparse(op, g);
  check_product(op, g, target);
  check_epilogue(op, g);
  check_scales(op, g);
  check_prepacked(op, g);
  check_sparse(op, arguments, target, g);
  if (g.operand[Out].view) check_out(op, g);
}

}  // namespace tcgemm::ops
