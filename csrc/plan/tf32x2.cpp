// The choice of kernels that make TF32 terms, and their cost model, which is fitted to 263 times of
// 60 products on an H200: docs/dev/kernels/cost-models.md.
#include "plan/tf32x2.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "plan/select_kernel.h"
#include "plan/slices.h"
#include "plan/split_fp32.h"

namespace tcgemm::plan {
namespace {

constexpr double kRecompute = 2.0;  // microseconds: a kernel that returns at once
constexpr double kLaunch = 2.8;     // microseconds
constexpr double kTile = 3000;      // clocks: the first loads, and the epilogue
// Clocks of a k-block with one warpgroup, and with two.
constexpr double kOneBlock = 870, kTwoBlock = 1365;
constexpr double kTranspose = 1.12;   // factor of a k-block with an MN-major a
constexpr double kBusy = 0.107;       // added to that factor where all multiprocessors are busy
constexpr double kClusterAdds = 1.1;  // microseconds
constexpr double kClock = 1.3;        // factor of Device's clock, which is that of large products

// The kernel of a product in TF32 terms that divides k so.
Candidate cheapest_tf32x2(const Problem& problem, const Device& device, std::string_view filter,
                          double least_bytes, Division division) {
  Search search(device, filter, least_bytes);
  search.restart(division);
  OrientedProblem oriented(problem, false);
  // The kernels read b K-major only.
  const OperandLayout& layout = oriented.operands.b.layout;
  oriented.may_copy_b |= layout.major == Major::MN && !layout.any_major;
  search.try_all_rows(oriented);
  return search.best;
}

// Its slices of k, which a cluster adds: those of the product without its epilogue.
Division division_of_tf32x2(const Problem& problem, const Device& device, double least_bytes) {
  const Problem plain = partial_sums(problem, 1, row_major_result(problem, DType::f32));
  const auto launch = [&](Division division) {
    return cheapest_tf32x2(plain, device, {}, least_bytes, division).launch;
  };
  const LaunchConfig whole = launch({});
  if (whole.waves > 1) return {};  // no tile leaves a multiprocessor for another slice
  return fastest_division({}, whole.microseconds, std::array{2, 3, 4, 6, kMostClusterSlices}, true,
                          [&](Division division, double) { return launch(division).microseconds; });
}

}  // namespace

double tf32x2_time(const GemmConfig& config, const Problem& problem, const Device& device,
                   const LaunchConfig& launch, double least_bytes) {
  const double blocks = double(ceil_div(ceil_div(problem.k, config.tile_k()), launch.slices));
  const double busy = double(launch.grid) / device.multiprocessors;
  const double transpose = major_a(config.layout) == Major::MN ? kTranspose : 1.0;
  const double block =
      (config.warpgroups == 1 ? kOneBlock : kTwoBlock) * transpose * (1 + kBusy * busy);
  const double clocks = std::ceil(launch.waves) * (kTile + blocks * block);
  const double memory = least_bytes / device.memory_rate * 1e6;
  const double adds = launch.cluster_adds ? kClusterAdds : 0;
  return kLaunch + std::max(clocks / (device.hopper.clock * kClock), memory) + adds;
}

std::optional<Plan> plan_tf32x2(const Problem& original, const Device& device,
                                std::string_view filter, double least_bytes,
                                std::int64_t least_depth, double most_microseconds) {
  // amax would count results that the recompute kernel replaces.
  if (original.k < least_depth || original.has(Slot::amax)) return std::nullopt;
  // A weight with prepared bf16 terms has a wide range: all results would be computed again.
  for (const Slot slot : {Slot::terms_a, Slot::terms_b})
    if (filter.empty() && original.prepared(slot).terms == kBf16Terms) return std::nullopt;
  const auto plan_in = [&](bool swap_ab) -> std::optional<Plan> {
    const Problem unsplit = swap_ab ? transposed(original) : original;
    Problem problem = unsplit;
    problem.tf32x2 = true;
    const Division division =
        filter.empty() ? division_of_tf32x2(problem, device, least_bytes) : Division{};
    const Candidate best = cheapest_tf32x2(problem, device, filter, least_bytes, division);
    const double microseconds = best.launch.microseconds + kRecompute;
    if (best.launch.config_index < 0 || !(microseconds < most_microseconds)) return std::nullopt;
    const std::optional<LaunchConfig> recompute =
        cheapest_fp64_kernel(unsplit, device, has_recompute_tile);
    if (!recompute) return std::nullopt;
    Plan plan;
    plan.main = best.launch;
    plan.swap_ab = swap_ab;
    plan.passes.repack_a = best.repack_a;
    plan.passes.repack_b = best.repack_b;
    plan.passes.recompute = recompute_plan(*recompute, problem, plan);
    plan.estimate.microseconds = microseconds;
    return plan;
  };
  const bool has_more_columns = original.n > original.m;
  const std::optional<Plan> plan = plan_in(has_more_columns);
  // The kernel of a filter may have the layout of the other orientation alone.
  return plan || filter.empty() ? plan : plan_in(!has_more_columns);
}

}  // namespace tcgemm::plan
