#include "plan/grouped.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "catalog.h"
#include "core/integer.h"
#include "plan/candidate.h"
#include "plan/memory.h"
#include "plan/select_kernel.h"
#include "plan/store_path.h"

namespace tcgemm::plan {
namespace {

bool computes(const GemmConfig& config, const Problem& problem) {
  // f32 operands that are not rounded are multiplied as f64.
  const DType accumulator = problem.input_a == DType::f32 ? DType::f64 : problem.accumulator;
  return config.grouped == problem.grouped && config.input == problem.input_a &&
         config.input_b == problem.input_b && config.accumulator == accumulator && selected(config);
}

// The most tiles, or clusters of them, that there are for any offs.
std::int64_t most_tiles(const GemmConfig& config, const Problem& problem,
                        const LaunchConfig& launch) {
  const std::int64_t rows = problem.grouped == Axis::m
                                ? problem.m / (config.tile_m() * launch.cluster.m) + problem.batch
                                : problem.batch * launch.tiles_m;
  return rows * launch.tiles_n;
}

// The launch of a kernel of sm_90a: as many clusters as run at one time, unless there are fewer
// tiles. It takes less than `most` microseconds.
std::optional<LaunchConfig> fit_tma(const GemmConfig& config, const Problem& problem,
                                    const Problem& mean, const Device& device,
                                    const CandidateOperands& operands, AskedCluster cluster,
                                    double least_bytes, double most) {
  std::optional<LaunchConfig> launch =
      fit_sm90(config, mean, device, operands, cluster, {}, least_bytes, most);
  if (!launch) return launch;
  const std::int64_t resident = resident_clusters(config, device, launch->cluster.size());
  launch->grid =
      int(std::min(resident, most_tiles(config, problem, *launch))) * launch->cluster.size();
  // TMA stores whole boxes, but for those that the unrolled epilogue clips.
  if (problem.grouped == Axis::m && launch->epilogue_path == EpiloguePath::rolled)
    launch->store_path = store_path_of_sums(problem);
  return launch;
}

// The same for a kernel that loads with cp.async. One of sm_80 has a CTA for each tile. A group
// begins at any index of the dimension that groups divide, so vectors along it are not aligned.
std::optional<LaunchConfig> fit_cp_async(const GemmConfig& config, const Problem& problem,
                                         const Problem& mean, const Device& device,
                                         const CandidateOperands& operands, AskedCluster cluster,
                                         double least_bytes) {
  const bool is_hopper = config.arch == Arch::sm90a;
  std::optional<LaunchConfig> launch = is_hopper
                                           ? fit_fp64(config, mean, device, operands, cluster, {})
                                           : fit_sm80(config, mean, device, operands, cluster);
  if (!launch) return launch;
  const std::int64_t tiles = most_tiles(config, problem, *launch);
  if (tiles > std::numeric_limits<int>::max()) return std::nullopt;
  launch->grid = is_hopper ? std::min(int(tiles), device.multiprocessors) : int(tiles);
  const bool rows = problem.grouped == Axis::m;
  launch->vector_a &= major_a(config.layout) != (rows ? Major::MN : Major::K);
  launch->vector_b &= rows || major_b(config.layout) != Major::K;
  launch->store_path = store_path(config, problem);
  launch->microseconds = with_memory(*launch, config, mean, least_bytes, device);
  return launch;
}

}  // namespace

Problem mean_groups(const Problem& problem) {
  Problem mean = problem;
  const std::int64_t count = std::max<std::int64_t>(1, problem.batch);
  std::int64_t& extent = problem.grouped == Axis::m   ? mean.m
                         : problem.grouped == Axis::n ? mean.n
                                                      : mean.k;
  // Of two at least, since the strides of a dimension of one index have no meaning.
  extent = std::max<std::int64_t>(2, ceil_div(extent, count));
  for (const Slot slot : mean.operands.given() & kBatchedSlots) {
    const OperandRow& row = operand_row(slot);
    Operand& operand = mean[slot];
    // Groups follow one another, so that one may begin at any row (column).
    if (row.rows == problem.grouped) operand.stride_batch = operand.stride_row;
    if (row.cols == problem.grouped) operand.stride_batch = operand.stride_col;
  }
  mean.grouped = Axis::one;
  mean.reset(Slot::offs);
  return mean;
}

Plan plan_grouped(const Problem& original, const Device& device, std::string_view filter,
                  double least_bytes) {
  OrientedProblem oriented(original, original.grouped == Axis::n);
  const Problem& problem = oriented.problem;
  const Problem mean = mean_groups(problem);
  const Code code = planned_code(device.compute_capability);
  const AskedCluster cluster = cluster_of(cluster_text(filter));
  const std::string_view row = row_text(filter);
  Plan plan;
  plan.swap_ab = oriented.swap_ab;
  plan.estimate.microseconds = HUGE_VAL;
  for (int choice = 0; choice < 4; ++choice) {
    if (choice != 0 && problem.k == 0) continue;
    oriented.choose(choice);
    const double passes = pass_time(oriented, choice, device);
    for (std::size_t i = 0; i < kCatalog.size(); ++i) {
      const GemmConfig& config = kCatalog[i];
      if (!computes(config, problem) || !holds(code, config.arch)) continue;
      if (!row.empty() && !matches(name(config), row)) continue;
      const double most = plan.estimate.microseconds - passes;
      std::optional<LaunchConfig> launch =
          config.uses_tma() ? fit_tma(config, problem, mean, device, oriented.operands, cluster,
                                      least_bytes, most)
                            : fit_cp_async(config, problem, mean, device, oriented.operands,
                                           cluster, least_bytes);
      if (!launch || !(launch->microseconds < most)) continue;
      launch->config_index = int(i);
      plan.main = *launch;
      plan.estimate.microseconds = launch->microseconds + passes;
      plan.passes.repack_a.reset();
      plan.passes.repack_b.reset();
      if (choice & 1) plan.passes.repack_a = repack_pass(oriented.a);
      if (choice & 2) plan.passes.repack_b = repack_pass(oriented.b);
    }
  }
  return plan;
}

}  // namespace tcgemm::plan
