// The part of every dense operator that does not depend on the backend.
#include "ops/product/dense.h"

#include "plan/planner.h"

namespace tcgemm::ops {
namespace {

// Sets operand `slot`, `out` or `z`, to a new contiguous tensor.
TensorHandle allocate_result(Op op, Slot slot, CheckedGemm& checked) {
  const char* const what = slot == Slot::z ? "the argument of the activation" : "the result";
  TensorHandle tensor =
      allocate(what, checked.shape(), scalar_type_of(checked.out_dtype), checked[Slot::a].view);
  CheckedOperand& result = checked[slot];
  result.view = view_of(name(op), name(slot), tensor, true);
  bind_matrix_dims(result, checked.shows_rows, checked.shows_cols);
  return tensor;
}

}  // namespace

GemmResults gemm(Op op, const Arguments& arguments, Target target, GemmBackend backend,
                 bool with_z) {
  CheckedGemm checked;
  check(op, arguments, target, checked);
  const DType type = checked.out_dtype;
  if (with_z && type != DType::f16 && type != DType::bf16 && type != DType::f32 &&
      type != DType::f64)
    fail(name(op), ": the result is ", type_name(type),
         ", which has no gradient, so its backward needs no z; call the overload without z.");
  if (with_z && checked.activation == Activation::none)
    fail(name(op), ": z is the argument of the activation, but there is no activation; pass one.");
  GemmResults results;
  if (!arguments[Slot::out]) results.out = allocate_result(op, Slot::out, checked);
  if (with_z) results.z = allocate_result(op, Slot::z, checked);
  if (returns_amax(op))
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
    copied = allocate_result(op, Slot::out, checked);
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
