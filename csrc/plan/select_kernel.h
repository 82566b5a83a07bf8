// The cheapest way to compute a Problem by one kernel: every row of the catalog that fits, with
// every copy that helps.
#pragma once

#include <string>
#include <string_view>

#include "core/arch.h"
#include "core/code.h"
#include "core/plan.h"
#include "core/problem.h"
#include "plan/candidate.h"

namespace tcgemm::plan {

// A product seen from one of its two sides: which operand is the kernel's a is the planner's to
// choose.
struct OrientedProblem {
  Problem problem;
  bool swap_ab;
  GemmOperand a, b;
  CandidateOperands inputs;
  bool may_copy_a, may_copy_b;

  OrientedProblem(const Problem& asked, bool swap_ab)
      : problem(swap_ab ? tcgemm::transposed(asked) : asked),
        swap_ab(swap_ab),
        a(operand_a(problem)),
        b(operand_b(problem)),
        inputs{{analyze_layout(a), a.converts() && problem.k > 0},
               {analyze_layout(b), b.converts() && problem.k > 0}},
        may_copy_a(may_copy(a, inputs.a)),
        may_copy_b(may_copy(b, inputs.b)) {}

  // A copy where it is not needed never pays; with K = 0 there is nothing to copy.
  static bool may_copy(const GemmOperand& operand, const CandidateOperand& input) {
    const OperandLayout& reading = input.reading;
    const bool turn = operand.k_major_only() && reading.major == Major::MN && !reading.either;
    return operand.k > 0 && (!reading.direct() || input.converts || turn);
  }

  // Bits 0 and 1 of `choice`: copy a, copy b. False: there is no such choice.
  bool choose(int choice) {
    inputs.a.prepared = choice & 1;
    inputs.b.prepared = choice & 2;
    return (!inputs.a.prepared || may_copy_a) && (!inputs.b.prepared || may_copy_b);
  }
};

// Finds the cheapest plan over all candidates.
class Search {
 public:
  // Rows that `wanted` holds, and whose name contains `filter`, alone: whoever chooses rows in
  // every call does it by their properties, since names take microseconds. `least_bytes` move
  // through memory in any case.
  using Wanted = bool (*)(const GemmConfig&);
  Search(const Device& device, std::string_view filter, double least_bytes,
         Wanted wanted = nullptr);

  // `rs_only`: with kernels alone that turn an operand on its way to registers. They store a
  // column-major result as fast as a row-major one, and no other kernel does.
  void try_orientation(OrientedProblem oriented, bool rs_only);

  bool found() const { return best.config_index >= 0; }

  Plan best;

 private:
  void try_kernel(const OrientedProblem& oriented, int row);

  const Device& device_;
  const Code code_;
  const std::string_view filter_;
  const double least_bytes_;
  const Wanted wanted_;
};

// Does some kernel turn operands of this type on their way to registers?
bool has_rs_kernel(DType input);

// What rows of the catalog in this build multiply with this code, in words; empty: nothing. Dense
// operands, or a sparse one with a dense one.
std::string supported_products(const Code& code, bool sparse);
// "e4m3 by e5m2 (accumulator f32)"
std::string types(DType a, DType b, DType accumulator);

}  // namespace tcgemm::plan
