// The part of every dense operator that does not depend on the backend.
#include "ops/dense.h"

#include "plan/planner.h"

namespace tcgemm::ops {
namespace {

// Sets operand `out` to a new contiguous tensor.
TensorHandle allocate_out(Op op, CheckedGemm& checked) {
  TensorHandle tensor = allocate("the result", checked.shape(), scalar_type_of(checked.out_dtype),
                                 checked[Slot::a].view);
  CheckedOperand& out = checked[Slot::out];
  out.view = view_of(name(op), "out", tensor, true);
  bind_matrix_dims(out, checked.shows_rows, checked.shows_cols);
  return tensor;
}

}  // namespace

GemmResults gemm(Op op, const Arguments& arguments, Target target, GemmBackend backend) {
  CheckedGemm checked;
  check(op, arguments, target, checked);
  GemmResults results;
  if (!arguments[Slot::out]) results.out = allocate_out(op, checked);
  if (op == Op::scaled_mm_amax)
    results.amax =
        allocate("amax", {nullptr, 0}, scalar_type_of(DType::f32), checked[Slot::a].view);
  if (checked.empty()) {
    if (results.amax) zero(results.amax);
    return results;
  }
  BatchedProblem batched;
  make_problems(op, checked, arguments, batched);
  TensorHandle copied;
  if (target == Target::cuda && arguments[Slot::out] &&
      plan::copies_result(batched.problem, arguments.filter())) {
    copied = allocate_out(op, checked);
    batched = {};
    make_problems(op, checked, arguments, batched);
  }
  if (results.amax)
    batched.problem.set(Slot::amax,
                        Matrix{reinterpret_cast<std::uintptr_t>(data(results.amax)), DType::f32});
  backend(batched, checked, arguments);
  if (copied) copy(arguments[Slot::out], copied);
  return results;
}

}  // namespace tcgemm::ops
