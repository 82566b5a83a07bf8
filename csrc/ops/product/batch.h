// CheckedGemm -> BatchedProblem: one Problem with one batch stride for each operand, and host loops
// over the batch dimensions that do not fit this form.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "ops/check/check.h"

namespace tcgemm::ops {

// A dimension of the whole call, with every operand's stride along it.
struct StridedDim {
  std::int64_t size;
  PerSlot<std::int64_t> stride;  // elements; 0 broadcasts
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

// Fills a new `batched` with the strided tensors. The result must not be empty, and
// checked[Slot::out] must be set.
void collapse(const CheckedGemm& checked, double alpha, double beta, BatchedProblem& batched);

// collapse(), and the prepared terms and the metadata of the operands: all but amax.
void make_problems(const Operator& op, const CheckedGemm& checked, const Arguments& arguments,
                   BatchedProblem& batched);

// Calls function(problem) for every problem of the batch.
template <class Function>
void for_each_problem(const BatchedProblem& batched, Function function) {
  if (batched.loop_dims == 0) return function(batched.problem);
  const Problem& first = batched.problem;
  const std::int64_t count = batched.count();
  for (std::int64_t index = 0; index < count; ++index) {
    Problem problem = first;
    std::int64_t rest = index;
    for (int i = 0; i < batched.loop_dims; ++i) {
      const std::int64_t step = rest % batched.loop[i].size;
      rest /= batched.loop[i].size;
      for (const Slot slot : problem.operands.given() & kBatchedSlots)
        problem[slot].address += bytes_of(step * batched.loop[i].stride[slot], problem[slot].dtype);
    }
    problem.amax_continues = index > 0;
    function(problem);
  }
}

}  // namespace tcgemm::ops
