// The kernels of a problem in both orientations: as given, or with A and B swapped.
#pragma once

#include <cmath>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/problem.h"
#include "plan/candidate.h"
#include "plan/select_kernel.h"

namespace tcgemm::plan {

// The bytes of device memory that no plan can avoid.
double traffic(const Problem& problem);

// Would swapping A and B change bits of the result? The order of k stays, and so does all of the
// epilogue but these:
//   scales          a kernel multiplies by alpha and its scale_a first
//   terms of f32    the product of a's low and b's high terms is added first
bool swap_ab_changes_bits(const Problem& problem);

// A column-major result is a row-major result of the problem with A and B swapped.
bool is_column_major(const Problem& problem);

// A filter restricts the choice to some kernels, so then A and B may be swapped in any case.
bool may_swap_ab(const Problem& problem, std::string_view filter);

// Should the kernel compute the transposed problem? A kernel's a must be the 2:4 operand, or the
// packed weight, and such kernels store both majors.
bool swaps_ab(const Problem& original, std::string_view filter);

// int4 operands as s8, which repack passes convert them to.
Problem with_s8_inputs(Problem problem);

// Are there thin kernels for the shape, in one of its orientations?
bool may_be_thin(const Problem& problem);

// What a filter leaves of the kernels of a problem. Both orientations are analysed once, for any
// number of divisions of k.
class Orientations {
 public:
  Orientations(const Problem& problem, const Device& device, std::string_view filter);

  // The cheapest kernel that takes less than `most_microseconds`. Without a filter it divides k
  // so: either way to add the slices.
  Candidate cheapest(Division division, double most_microseconds = HUGE_VAL);

 private:
  struct Orientation {
    OrientedProblem oriented;
    Rows rows;
    Search::OrientationFilter filter;
  };

  const Problem& original_;
  const Device& device_;
  const std::string_view filter_;
  // A swap changes bits, so the strides of the result must not decide it.
  bool decides_by_rows_;
  Search search_;
  std::vector<Orientation> orientations_;
};

inline Candidate cheapest(const Problem& problem, const Device& device, std::string_view filter,
                          Division division) {
  return Orientations(problem, device, filter).cheapest(division);
}

}  // namespace tcgemm::plan
