// Which orientations a problem may have, and the cheapest kernel in any of them.
#include "plan/orientations.h"

#include <algorithm>

#include "core/packed_weight.h"
#include "core/sparse.h"

namespace tcgemm::plan {
namespace {

// A filter without an orientation takes this one only where no kernel has the other one.
bool is_swapped_alone(const GemmConfig& config, const Problem& problem, Division division) {
  return config.columns_only ||
         (!config.has_kernel(EpiloguePath::columns) && gains_from_swap(config, problem, division));
}

// The problem with a row-major result of the same dtype.
Problem with_row_major_result(Problem problem) {
  Matrix& out = problem[Slot::out];
  out = row_major_result(problem, out.dtype);
  return problem;
}

// Are the strides and the alignment of the result those of with_row_major_result()?
bool has_row_major_result(const Problem& problem) {
  const Matrix& out = problem[Slot::out];
  return out.stride_row == problem.n && out.stride_col == 1 && out.address % kVectorBytes == 0 &&
         (problem.batch == 1 || out.stride_batch == problem.m * problem.n);
}

}  // namespace

double traffic(const Problem& problem) {
  const auto size = [&](const Matrix& matrix, std::int64_t rows, std::int64_t cols) {
    return matrix_bytes(matrix, rows, cols, problem.batch);
  };
  double total = result_bytes(problem);
  if (problem.has(Slot::packed_a))
    total += double(PackedLayout{problem.m, problem.k, problem.packed}.bytes());
  else
    total += size(problem[Slot::a], problem.m, problem.stored_k_a());
  if (problem.has(Slot::packed_b))
    total += double(PackedLayout{problem.n, problem.k, problem.packed}.bytes());
  else
    total += size(problem[Slot::b], problem.stored_k_b(), problem.n);
  const auto metadata = [&](std::int64_t rows, DType type) {
    return double(MetadataTiles{rows, problem.k, bits(type)}.bytes());
  };
  if (problem.has(Slot::sparse_a)) total += metadata(problem.m, problem.input_a);
  if (problem.has(Slot::sparse_b)) total += metadata(problem.n, problem.input_b);
  for (const Slot slot : problem.operands.given() & kAddends)
    total += size(problem[slot], problem.m, problem.n);
  return total;
}

bool swap_ab_changes_bits(const Problem& problem) {
  if (problem.input_a == DType::f32) return true;
  if (problem.block_scaled()) return false;  // the mainloop multiplies by their product
  return int(problem.alpha != 1.0) + int(problem.has(Slot::scale_a)) +
             int(problem.has(Slot::scale_b)) >
         1;
}

bool is_column_major(const Problem& problem) {
  return tcgemm::is_column_major(problem[Slot::out]) && problem.n > 1;
}

bool may_swap_ab(const Problem& problem, std::string_view filter) {
  return !filter.empty() || !swap_ab_changes_bits(problem);
}

bool swaps_ab(const Problem& original, std::string_view filter) {
  if (original.has_packed_weight()) return original.has(Slot::packed_b);
  return original.is_sparse() ? original.has(Slot::sparse_b)
                              : is_column_major(original) && may_swap_ab(original, filter);
}

Problem with_s8_inputs(Problem problem) {
  problem.input_a = problem.input_b = DType::s8;
  return problem;
}

bool may_be_thin(const Problem& problem) {
  return problem.batch == 1 && problem.k <= kMostThinDepth &&
         std::min(problem.m, problem.n) <= kMostThinColumns;
}

Orientations::Orientations(const Problem& problem, const Device& device, std::string_view filter)
    : original_(problem),
      device_(device),
      filter_(filter),
      search_(device, filter, traffic(problem)) {
  const bool swap_ab = swaps_ab(problem, filter), asks_swapped = filter.ends_with(kSwapped);
  const DType other_input = swap_ab ? problem.input_a : problem.input_b;
  const bool may_swap =
      !problem.is_sparse() && (!problem.batch_invariant || may_swap_ab(problem, filter));
  // The GEMV kernels have the packed weight as b.
  const bool tries_both = problem.has_packed_weight()
                              ? !asks_swapped
                              : may_swap && (asks_swapped || may_gain_from_swap(other_input) ||
                                             may_be_gemv(problem) || may_be_thin(problem));
  decides_by_rows_ = tries_both && !problem.has_packed_weight() && !may_swap_ab(problem, filter) &&
                     !has_row_major_result(problem);
  const Search::OrientationFilter gains = asks_swapped     ? nullptr
                                          : filter.empty() ? gains_from_swap
                                                           : is_swapped_alone;
  orientations_.reserve(4);
  const auto add = [&](const Problem& inputs) {
    const auto add_orientation = [&](bool swap, Search::OrientationFilter filter) {
      OrientedProblem oriented(inputs, swap);
      orientations_.push_back({oriented, search_.rows_for(oriented), filter});
    };
    if (!asks_swapped) add_orientation(swap_ab, nullptr);
    if (tries_both) add_orientation(!swap_ab, gains);
  };
  add(problem);
  if (is_int4(problem.input_a)) add(with_s8_inputs(problem));
}

Candidate Orientations::cheapest(Division division, double most_microseconds) {
  std::optional<bool> decided;
  if (decides_by_rows_) {
    const Problem rows = with_row_major_result(original_);
    decided = Orientations(rows, device_, filter_).cheapest(division).swaps_factors();
  }
  const auto try_all = [&] {
    for (Orientation& one : orientations_)
      if (decided.value_or(one.oriented.swap_ab) == one.oriented.swap_ab)
        search_.try_rows(one.oriented, one.rows, one.filter);
  };
  search_.restart(division, most_microseconds);
  try_all();
  if (filter_.empty() && division.slices > 1 && division.slices <= kMostClusterSlices) {
    division.cluster_adds = true;
    search_.divide(division);
    try_all();
  }
  return search_.best;
}

}  // namespace tcgemm::plan
