// The cheapest way to compute a Problem with one kernel: the search tries every config of the
// catalog that fits, with every repack pass that helps.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/code.h"
#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"
#include "plan/candidate.h"
#include "plan/sm90_time.h"

namespace tcgemm::plan {

// A problem in one of its two orientations: as given, or with A and B swapped (out^T = b^T a^T).
struct OrientedProblem {
  Problem problem;
  bool swap_ab;
  GemmOperand a, b;
  CandidateOperands operands;
  bool may_copy_a, may_copy_b;

  OrientedProblem(const Problem& asked, bool swap_ab)
      : problem(swap_ab ? tcgemm::transposed(asked) : asked),
        swap_ab(swap_ab),
        a(operand_a(problem)),
        b(operand_b(problem)),
        operands{{analyze_layout(a), a.converts() && problem.k > 0},
                 {analyze_layout(b), b.converts() && problem.k > 0}},
        may_copy_a(may_copy(a, operands.a)),
        may_copy_b(may_copy(b, operands.b)) {}

  // A copy that is not needed never pays off; with K = 0 there is nothing to copy.
  static bool may_copy(const GemmOperand& operand, const CandidateOperand& input) {
    const OperandLayout& layout = input.layout;
    const bool wrong_major =
        operand.k_major_only() && layout.major == Major::MN && !layout.any_major;
    return operand.k > 0 && (!layout.tma_readable() || input.needs_conversion || wrong_major);
  }

  // Bits 0 and 1 of `choice` mean: repack a, repack b.
  bool may_choose(int choice) const {
    return (!(choice & 1) || may_copy_a) && (!(choice & 2) || may_copy_b);
  }
  void choose(int choice) {
    operands.a.repacked = choice & 1;
    operands.b.repacked = choice & 2;
  }
};

// One way to run a problem: a kernel, and the operands that are repacked before it.
struct Candidate {
  LaunchConfig launch;
  bool swap_ab = false;
  std::optional<RepackPass> repack_a, repack_b;

  bool found() const { return launch.config_index >= 0; }
  bool stores_by_columns() const {
    return found() && launch.epilogue_path == EpiloguePath::columns;
  }
  // Are two factors of the epilogue multiplied in the other order than that of the call?
  bool swaps_factors() const { return swap_ab && launch.epilogue_path != EpiloguePath::columns; }
};

// A filter with this end asks for the other orientation: a kernel computes out^T = b^T a^T.
inline constexpr std::string_view kSwapped = "^T";
// What it has after '/' if it asks for stream-K.
inline constexpr std::string_view kStreamK = "streamk";

std::string_view without_orientation(std::string_view filter);
// The row of a filter, or the part of its name, or the list of parts.
std::string_view row_text(std::string_view filter);

// The division that a filter asks for: slices of k at its end, "/4", or "/4c" for a cluster that
// adds them, or "/streamk"; or the whole name of a GEMV kernel.
Division division_of(std::string_view filter);

// What a filter has between '@' and '/': "4", "2x4"; empty if it asks for no cluster.
std::string_view cluster_text(std::string_view filter);
// The cluster of this text; nothing if there is no such cluster.
AskedCluster cluster_of(std::string_view text);

// Could the kernel gain from the other orientation of the problem, where it computes this one in
// this division of k?
bool gains_from_swap(const GemmConfig& config, const Problem& problem, Division division);
// Is there such a kernel of this input type for any problem?
bool may_gain_from_swap(DType input);

// May a GEMV kernel be the fastest one, in one of the orientations?
bool may_be_gemv(const Problem& problem);

// Do the kernels of this input type that a filter names have EpiloguePath::columns alone?
bool names_columns_only(std::string_view filter, DType input);

// A row of the catalog, and what its kernel takes at least for a problem.
struct Row {
  int index;
  Sm90Bound bound;
};
using Rows = std::vector<Row>;

// Microseconds of the passes that repack operands.
double pass_time(const OrientedProblem& oriented, int choice, const Device& device);

// Finds the cheapest candidate.
class Search {
 public:
  // Only configs that `config_filter` accepts and whose name contains `filter` are tried, or the
  // one whose name it is. "...@4" or "...@2x2" asks for a cluster as well. A choice that
  // every call makes uses `config_filter`, because comparing names takes microseconds.
  // `least_bytes` is the memory traffic that no plan can avoid.
  using ConfigFilter = bool (*)(const GemmConfig&);
  Search(const Device& device, std::string_view filter, double least_bytes,
         ConfigFilter config_filter = nullptr);

  // Candidates divide k so from now on, or as the filter says if there is one.
  void divide(Division division);
  // Forgets what it has found as well, and finds only candidates that take less than
  // `most_microseconds`.
  void restart(Division division, double most_microseconds = HUGE_VAL);

  // The rows that may compute the problem, in any division of k.
  Rows rows_for(const OrientedProblem& oriented) const;

  // Only rows that `orientation_filter` accepts are tried.
  using OrientationFilter = bool (*)(const GemmConfig&, const Problem&, Division);
  void try_rows(OrientedProblem& oriented, const Rows& rows,
                OrientationFilter orientation_filter = nullptr);
  void try_all_rows(OrientedProblem& oriented) { try_rows(oriented, rows_for(oriented)); }

  // Its time is `most_microseconds` until one is found.
  Candidate best;

 private:
  // A row, the operands that are repacked before it, and the microseconds that it takes at least.
  struct Try {
    double least;
    int row, choice;

    auto operator<=>(const Try&) const = default;
  };

  bool is_newest(Arch arch) const;
  bool is_wanted(const GemmConfig& config) const;
  bool may_compute(const OrientedProblem& oriented, const GemmConfig& config) const;
  void try_kernel(const OrientedProblem& oriented, int config_index, double pass_time);

  const Device& device_;
  const Code code_;
  std::string_view filter_;
  AskedCluster cluster_;
  const double least_bytes_;
  const ConfigFilter config_filter_;
  const bool has_filter_;
  bool names_one_row_ = false;  // the filter is the whole name of a row
  Division division_;
  std::vector<Try> tries_;
};

// The operand types that this build's kernels multiply with this code, as text for errors; empty if
// there are none. `sparse`: kernels with a 2:4 operand instead of the dense ones; `grouped`: those
// of grouped products.
std::string supported_products(const Code& code, bool sparse, bool grouped = false);
// "e4m3 by e5m2 (accumulator f32)"
std::string types(DType a, DType b, DType accumulator);

}  // namespace tcgemm::plan
