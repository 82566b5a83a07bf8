// CheckedGemm -> BatchedProblem: one Problem with one batch stride for each operand, and host loops
// over the batch dimensions that do not fit this form.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "ops/check.h"

namespace tcgemm::ops {

// A dimension of the whole call, with every operand's stride along it.
struct StridedDim {
  std::int64_t size;
  std::int64_t stride[kSlots];  // elements; 0 broadcasts
};

struct BatchedProblem {
  Problem problem;  // of index 0 in every loop
  int loop_dims = 0;
  StridedDim loop[kMaxDims];

  std::int64_t count() const {
    std::int64_t count = 1;
    for (int i = 0; i < loop_dims; ++i) count *= loop[i].size;
    return count;
  }
};

// The result must not be empty, and checked.operand[Out] must be set.
void collapse(const CheckedGemm& checked, double alpha, double beta, BatchedProblem& batched);

// The operands of the problem by Slot; null if it has none.
inline void matrices_by_slot(Problem& problem, Matrix* (&by_slot)[kSlots]) {
  by_slot[A] = &problem.a;
  by_slot[B] = &problem.b;
  by_slot[C] = problem.c ? &*problem.c : nullptr;
  by_slot[Bias] = problem.bias ? &*problem.bias : nullptr;
  by_slot[Residual] = problem.residual ? &*problem.residual : nullptr;
  by_slot[ScaleA] = problem.scale_a ? &problem.scale_a->values : nullptr;
  by_slot[ScaleB] = problem.scale_b ? &problem.scale_b->values : nullptr;
  by_slot[ZeroA] = problem.zero_a ? &*problem.zero_a : nullptr;
  by_slot[ZeroB] = problem.zero_b ? &*problem.zero_b : nullptr;
  by_slot[ScaleOut] = problem.scale_out ? &*problem.scale_out : nullptr;
  // One matrix serves every problem of the batch.
  by_slot[PreparedB] = by_slot[SparseA] = by_slot[SparseB] = nullptr;
  by_slot[Out] = &problem.out;
}

// Calls function(problem) for every problem of the batch.
template <class Function>
void for_each_problem(const BatchedProblem& batched, Function function) {
  if (batched.loop_dims == 0) return function(batched.problem);
  const Problem& first = batched.problem;
  const std::int64_t count = batched.count();
  for (std::int64_t index = 0; index < count; ++index) {
    Problem problem = first;
    Matrix* matrix[kSlots];
    matrices_by_slot(problem, matrix);
    std::int64_t rest = index;
    for (int i = 0; i < batched.loop_dims; ++i) {
      const std::int64_t step = rest % batched.loop[i].size;
      rest /= batched.loop[i].size;
      for (int slot = 0; slot < kSlots; ++slot)
        if (matrix[slot])
          matrix[slot]->address += step * batched.loop[i].stride[slot] * bytes(matrix[slot]->dtype);
    }
    problem.amax_continues = index > 0;
    function(problem);
  }
}

}  // namespace tcgemm::ops
