// What every dense operator does, whatever computes it.
#include "ops/dense.h"

namespace tcgemm::ops {

Results dense(Op op, const Arguments& arguments, Target target, Run run) {
  Geometry geometry;
  check(op, arguments, target, geometry);
  Results results;
  if (!arguments.out) {
    results.out = allocate("the result", geometry.shape(), type_of(geometry.out_dtype),
                           geometry.operand[A].view);
    Operand& out = geometry.operand[Out];
    out.view = read(name(op), "out", results.out, true);
    place(out, geometry.shows_rows, geometry.shows_cols);
  }
  if (op == Op::scaled_amax)
    results.amax = allocate("amax", {nullptr, 0}, type_of(DType::f32), geometry.operand[A].view);
  if (geometry.empty()) {
    if (results.amax) zero(results.amax);
    return results;
  }
  Products products;
  collapse(geometry, arguments.alpha, arguments.beta, products);
  give_prepared(op, geometry, products.problem);
  give_sparse(geometry, products.problem);
  if (results.amax)
    products.problem.amax =
        Matrix{reinterpret_cast<std::uintptr_t>(data(results.amax)), DType::f32};
  run(products, geometry, arguments);
  return results;
}

}  // namespace tcgemm::ops
