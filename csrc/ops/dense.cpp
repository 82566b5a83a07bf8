// What every dense operator does, whatever computes it.
#include "ops/dense.h"

namespace tcgemm::ops {

Handle dense(Op op, const Arguments& arguments, Target target, Run run) {
  Geometry geometry;
  check(op, arguments, target, geometry);
  Handle result;
  if (!arguments.out) {
    result = allocate("the result", geometry.shape(), type_of(geometry.out_dtype),
                      geometry.operand[A].view);
    Operand& out = geometry.operand[Out];
    out.view = read(name(op), "out", result, true);
    place(out, geometry.shows_rows, geometry.shows_cols);
  }
  if (geometry.empty()) return result;
  Products products;
  collapse(geometry, arguments.alpha, arguments.beta, products);
  run(products, geometry, arguments);
  return result;
}

}  // namespace tcgemm::ops
