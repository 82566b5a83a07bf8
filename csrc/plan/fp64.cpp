// Cost model of the FP64-accumulating kernels on Hopper: mma.sync, fed by cp.async, persistent.
//
// One instruction occupies the tensor cores for 64 clocks. The operands of a large tile arrive in
// an eighth of that time from L2 or memory; the operands of a narrow tile take longer.
#include <algorithm>
#include <cmath>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kLaunch = 1.6;  // microseconds
constexpr double kFill = 2000;   // clocks a tile: from the first load to the first mma
constexpr double kBlockOverhead =
    60;                            // clocks a k-block that the two warps of a scheduler do not hide
constexpr double kLoadRate = 30;   // bytes a clock into a multiprocessor
constexpr double kStore = 0.15;    // clocks to store an element of the tile
constexpr double kEpilogue = 0.4;  // the same if there are epilogue terms or scales
constexpr double kElementwise = 1.02;  // factor if operands are not loaded in 16-byte vectors
// Near the power cap the multiprocessors that idle in the last wave save power, so this share of
// the wave counts only as far as the wave is full; and a tile that reads more for each product than
// 128x128 costs more. Products of fewer FLOP were fitted without these.
constexpr double kPowerBoundFlops = 1e11;
constexpr double kPartialWave = 0.26;
constexpr double kTraffic = 10;  // times the reciprocal of a tile's rows, and of its columns
// Factor for one warpgroup: a scheduler has one warp, and no other warp hides its stalls.
constexpr double kOneWarpgroup = 1.65;

}  // namespace

std::optional<LaunchConfig> fit_fp64(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster, Division division) {
  if (!operands.can_load(config.layout) || config.shared_bytes() > device.shared_bytes ||
      cluster.value_or(ClusterShape{}).size() > 1 || division.cluster_adds ||
      (division.slices > 1 && division.slices > ceil_div(problem.k, config.tile_k())))
    return std::nullopt;
  LaunchConfig launch;
  launch.vector_a = operands.a.tma_readable();
  launch.vector_b = operands.b.tma_readable();
  launch.tiles_m = ceil_div(problem.m, config.tile_m());
  launch.tiles_n = ceil_div(problem.n, config.tile_n());
  launch.slices = division.slices;
  const double tiles =
      double(launch.tiles_m) * double(launch.tiles_n) * double(problem.batch) * launch.slices;
  launch.waves = tiles / device.multiprocessors;
  launch.grid = int(std::min(tiles, double(device.multiprocessors)));
  launch.raster_group = raster_group(config, device);

  const double area = double(config.tile_m()) * config.tile_n();
  const double stalls = config.warpgroups > 1 ? 1.0 : kOneWarpgroup;
  const double math = stalls * area * config.tile_k() / kHopperF64FmaPerClock + kBlockOverhead;
  const double load = (config.tile_m() + config.tile_n()) * config.row_bytes() / kLoadRate;
  const double slow = launch.vector_a && launch.vector_b ? 1.0 : kElementwise;
  const double depth = double(ceil_div(ceil_div(problem.k, config.tile_k()), launch.slices));
  const bool stores_sums = launch.slices > 1 || problem.has_default_epilogue();
  const double tile =
      depth * std::max(math, load) * slow + kFill + area * (stores_sums ? kStore : kEpilogue);
  double waves = std::ceil(launch.waves), traffic = 1;
  if (problem.flops() > kPowerBoundFlops) {
    waves = (1 - kPartialWave) * waves + kPartialWave * launch.waves;
    traffic += kTraffic * (1.0 / config.tile_m() + 1.0 / config.tile_n() - 2.0 / 128);
  }
  launch.microseconds = kLaunch + waves * tile * traffic / device.hopper.f64_clock;
  return launch;
}

}  // namespace tcgemm::plan
