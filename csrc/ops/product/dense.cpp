// The function of every product: it checks the arguments, allocates the results, and calls the
// backend.
#include "ops/product/dense.h"

#include <utility>

#include "ops/check/check.h"
#include "ops/operators.h"
#include "ops/product/batch.h"
#include "plan/planner.h"

namespace tcgemm::ops {
namespace {

// Sets operand `slot`, `out` or `z`, to a new contiguous tensor.
TensorHandle allocate_result(const Operator& op, Slot slot, CheckedGemm& checked) {
  const char* const what = slot == Slot::z ? "the argument of the activation" : "the result";
  TensorHandle tensor =
      allocate(what, checked.shape(), scalar_type_of(checked.out_dtype), checked[Slot::a].view);
  CheckedOperand& result = checked[slot];
  result.view = view_of(name(op), name(slot), tensor, true);
  bind_matrix_dims(result, checked.shows_rows, checked.shows_cols);
  return tensor;
}

// The results of a checked product: out, z and amax, each null that the call does not return.
Results compute(const Call& call, const Arguments& arguments, CheckedGemm& checked) {
  const Operator& op = call.op;
  TensorHandle out, z, amax;
  if (!arguments[Slot::out]) out = allocate_result(op, Slot::out, checked);
  if (call.overload == Overload::with_z) z = allocate_result(op, Slot::z, checked);
  if (op.has(kAmax))
    amax = allocate("amax", {nullptr, 0}, scalar_type_of(DType::f32), checked[Slot::a].view);
  if (checked.empty()) {
    if (amax) zero(amax);
    return {std::move(out), std::move(z), std::move(amax)};
  }
  if (checked.has_no_group()) {
    if (!arguments.accumulate) zero(out ? out : arguments[Slot::out]);
    if (z) zero(z);
    return {std::move(out), std::move(z), std::move(amax)};
  }
  BatchedProblem batched;
  make_problems(op, checked, arguments, batched);
  TensorHandle copied;
  if (call.backend.target == Target::cuda && arguments[Slot::out] && !arguments.accumulate &&
      plan::copies_result(batched.problem, arguments.filter())) {
    copied = allocate_result(op, Slot::out, checked);
    batched = {};
    make_problems(op, checked, arguments, batched);
  }
  if (amax)
    batched.problem.set(Slot::amax,
                        Matrix{reinterpret_cast<std::uintptr_t>(data(amax)), DType::f32});
  call.backend.gemm(batched, checked, arguments);
  if (copied) copy(arguments[Slot::out], copied);
  return {std::move(out), std::move(z), std::move(amax)};
}

}  // namespace

TensorHandle multiply(const Call& call, const Arguments& arguments, const View& a, const View& b) {
  CheckedGemm checked;
  checked[Slot::a].view = a;
  checked[Slot::b].view = b;
  check_types(call.op, arguments, checked);
  check_operand_shapes(call.op, checked, call.backend.target);
  return std::move(compute(call, arguments, checked)[0]);
}

Results product(const Call& call) {
  const Operator& op = call.op;
  const bool with_z = call.overload == Overload::with_z;
  const Arguments arguments = unbox(call);
  CheckedGemm checked;
  check(op, arguments, call.backend.target, checked);
  const DType type = checked.out_dtype;
  if (with_z && type != DType::f16 && type != DType::bf16 && type != DType::f32 &&
      type != DType::f64)
    fail(name(op), ": the result is ", type_name(type),
         ", which has no gradient, so its backward needs no z; call the overload without z.");
  if (with_z && checked.activation == Activation::none)
    fail(name(op), ": z is the argument of the activation, but there is no activation; pass one.");
  return compute(call, arguments, checked);
}

}  // namespace tcgemm::ops
