// What every dense operator does, whatever computes it.
#include "ops/dense.h"

namespace tcgemm::ops {

Results dense(Op op, const Arguments& arguments, Target target, Run run) {
  CheckedGemm checked;
  check(op, arguments, target, checked);
  Results results;
  if (!arguments.out) {
    results.out = allocate("the result", checked.shape(), type_of(checked.out_dtype),
                           checked.operand[A].view);
    CheckedOperand& out = checked.operand[Out];
    out.view = view_of(name(op), "out", results.out, true);
    bind_matrix_dims(out, checked.shows_rows, checked.shows_cols);
  }
  if (op == Op::scaled_amax)
    results.amax = allocate("amax", {nullptr, 0}, type_of(DType::f32), checked.operand[A].view);
  if (checked.empty()) {
    if (results.amax) zero(results.amax);
    return results;
  }
  BatchedProblem products;
  collapse(checked, arguments.alpha, arguments.beta, products);
  bind_prepacked(op, checked, products.problem);
  bind_sparse(checked, products.problem);
  if (results.amax)
    products.problem.amax =
        Matrix{reinterpret_cast<std::uintptr_t>(data(results.amax)), DType::f32};
  run(products, checked, arguments);
  return results;
}

}  // namespace tcgemm::ops
