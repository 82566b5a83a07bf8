// Geometry -> Products: one Problem with one batch stride for each operand, and loops around it for
// what does not fit that form.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "ops/check.h"

namespace tcgemm::ops {

struct Loop {
  std::int64_t size;
  std::int64_t stride[kSlots];  // elements; 0 broadcasts
};

struct BatchedProblem {
  Problem problem;  // the first one
  int loops = 0;
  Loop loop[kMaxDims];

  std::int64_t count() const {
    std::int64_t product = 1;
    for (int i = 0; i < loops; ++i) product *= loop[i].size;
    return product;
  }
};

// Not for an empty result. `out` has its place in g.operand[Out].
void collapse(const CheckedGemm& g, double alpha, double beta, BatchedProblem& products);

// The operands of the problem, in the order of Slot; null where there is none.
inline void matrices(Problem& problem, Matrix* (&found)[kSlots]) {
  found[A] = &problem.a;
  found[B] = &problem.b;
  found[C] = problem.c ? &*problem.c : nullptr;
  found[Bias] = problem.bias ? &*problem.bias : nullptr;
  found[Residual] = problem.residual ? &*problem.residual : nullptr;
  found[ScaleA] = problem.scale_a ? &problem.scale_a->values : nullptr;
  found[ScaleB] = problem.scale_b ? &problem.scale_b->values : nullptr;
  found[ZeroA] = problem.zero_a ? &*problem.zero_a : nullptr;
  found[ZeroB] = problem.zero_b ? &*problem.zero_b : nullptr;
  found[ScaleOut] = problem.scale_out ? &*problem.scale_out : nullptr;
  // Of one matrix, which serves every product.
  found[PreparedB] = found[SparseA] = found[SparseB] = nullptr;
  found[Out] = &problem.out;
}

// Calls run(problem) for each.
template <class Run>
void for_each(const BatchedProblem& products, Run run) {
  if (products.loops == 0) return run(products.problem);
  const Problem& first = products.problem;
  const std::int64_t count = products.count();
  for (std::int64_t index = 0; index < count; ++index) {
    Problem problem = first;
    Matrix* matrix[kSlots];
    matrices(problem, matrix);
    std::int64_t rest = index;
    for (int i = 0; i < products.loops; ++i) {
      const std::int64_t at = rest % products.loop[i].size;
      rest /= products.loop[i].size;
      for (int slot = 0; slot < kSlots; ++slot)
        if (matrix[slot])
          matrix[slot]->address += at * products.loop[i].stride[slot] * bytes(matrix[slot]->dtype);
    }
    problem.amax_continues = index > 0;
    run(problem);
  }
}

}  // namespace tcgemm::ops
