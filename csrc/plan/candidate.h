// One way to compute a Problem, and what it is expected to cost: sm80.cpp and sm90.cpp know the
// architectures, planner.cpp chooses.
#pragma once

#include "catalog.h"
#include "core/arch.h"
#include "core/plan.h"
#include "core/problem.h"
#include "plan/operand.h"

namespace tcgemm::plan {

// What a candidate reads: the operands as they are or after a prepare pass.
struct Inputs {
  Reading a, b;
  bool prepare_a = false, prepare_b = false;

  // Can a kernel of this layout read both as they will be?
  bool serve(Layout layout) const {
    const auto fits = [](const Reading& reading, bool prepared, Major major) {
      return prepared ? major == Major::K : reading.either || reading.major == major;
    };
    return fits(a, prepare_a, major_a(layout)) && fits(b, prepare_b, major_b(layout));
  }
};

// Time of one tile's k-loop and of the whole kernel, without prepare passes. `plan` gets grid,
// cluster, tiles and waves. False: this kernel cannot run the problem.
bool fit_sm80(const Kernel& kernel, const Problem& problem, const Device& device,
              const Inputs& inputs, Plan& plan);
bool fit_sm90(const Kernel& kernel, const Problem& problem, const Device& device,
              const Inputs& inputs, Plan& plan);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tcgemm::plan
