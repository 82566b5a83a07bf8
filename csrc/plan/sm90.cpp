// What a TMA + wgmma kernel costs on Hopper.
//
// A block spends per k-block the larger of the tensor cores' time and the time to take the operands
// in from L2; per tile a fill and an epilogue; and the grid is as slow as its last wave. The
// constants were fitted to the times of every tile with both cluster sizes on 25 shapes of bf16 TN
// on an H200: the tile that the model picks is within 5 % of the fastest one on each, and the
// fastest itself on most.
#include <algorithm>
#include <cmath>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kClock = 1587;         // clocks a microsecond: between boost and the power cap
constexpr double kFmaPerClock = 2048;   // f16/bf16 tensor cores of one multiprocessor
constexpr double kBytesPerClock = 80;   // L2 to one multiprocessor
constexpr double kLaunch = 1.35;        // microseconds: launch and barriers
constexpr double kCluster = 0.15;       // microseconds: a cluster's start
constexpr double kFill = 1770;          // clocks a tile: from the first load to the first product
constexpr double kBlockOverhead = 156;  // clocks a k-block: barrier, issue, and what is not hidden
constexpr double kPlainStore = 0.03;    // clocks an element of the tile to convert and store it
constexpr double kOptions = 0.1;        // the same with an epilogue
constexpr double kTraffic = 0.02;       // bytes cost power even where their time is hidden
// Near the power cap, multiprocessors that idle in the last wave give their power to the others, so
// that a part of the wave counts only as far as it is full. Smaller problems do not reach the cap.
constexpr double kPowerBoundFlops = 1.1e10;
constexpr double kPartialWave = 0.26;

double wave_time(double waves, double flops) {
  const double share = flops < kPowerBoundFlops ? 0.0 : kPartialWave;
  return (1 - share) * std::ceil(waves) + share * waves;
}

// Clocks a product takes beside the best tile's: three warpgroups share 128 registers a thread, two
// blocks of rows a warpgroup read b twice.
double issue(const Kernel& kernel) {
  if (kernel.warpgroups == 3) return 1.036;
  return kernel.m64_blocks > 1 ? 1.01 : 1.0;
}

double kernel_time(const Kernel& kernel, const Problem& problem, const Plan& plan) {
  const double depth = double(ceil_div(problem.k, kernel.tile_k()));
  const double area = double(kernel.tile_m()) * kernel.tile_n();
  const double math = issue(kernel) * area * kernel.tile_k() / kFmaPerClock;
  const double bytes_in = (kernel.tile_m() + double(kernel.tile_n()) / plan.cluster) *
                          kernel.tile_k() * bytes(kernel.input);
  const double load = bytes_in / kBytesPerClock;
  const double store = area * (problem.plain() ? kPlainStore : kOptions);
  const double tile =
      depth * (std::max(math, load) + kBlockOverhead + kTraffic * load) + kFill + store;
  const double start = kLaunch + (plan.cluster > 1 ? kCluster : 0.0);
  return start + wave_time(plan.waves, problem.flops()) * tile / kClock;
}

}  // namespace

bool fit_sm90(const Kernel& kernel, const Problem& problem, const Device& device,
              const Inputs& inputs, Plan& plan) {
  const bool direct_a = inputs.prepare_a || inputs.a.direct();
  const bool direct_b = inputs.prepare_b || inputs.b.direct();
  if (!direct_a || !direct_b || problem.k == 0 || !inputs.serve(kernel.layout)) return false;
  if (kernel.shared_bytes() > device.shared_bytes) return false;

  // TMA drops what lies outside in whole 16-byte words: a ragged row would lose its neighbours.
  plan.store_tma = bits(problem.out.dtype) == 16 && whole_words(problem.n, problem.out.dtype) &&
                   wide(problem.out, problem.m, problem.n, problem.batch);
  const std::int64_t rows = ceil_div(problem.m, kernel.tile_m());
  plan.tiles_n = ceil_div(problem.n, kernel.tile_n());
  double best = HUGE_VAL;
  Plan chosen = plan;
  for (int cluster : {1, 2}) {
    if (cluster > rows) break;
    Plan trial = plan;
    trial.cluster = cluster;
    trial.tiles_m = ceil_div(rows, cluster);
    const double clusters = double(trial.tiles_m) * double(plan.tiles_n) * double(problem.batch);
    const std::int64_t resident = device.multiprocessors / cluster;
    trial.waves = clusters / double(resident);
    trial.grid = int(std::min(clusters, double(resident))) * cluster;
    trial.microseconds = kernel_time(kernel, problem, trial);
    if (trial.microseconds < best) {
      best = trial.microseconds;
      chosen = trial;
    }
  }
  plan = chosen;
  // Tiles in flight at one time form a square of the result: the fewest bytes from L2 for the same
  // work.
  const double square =
      std::sqrt(double(device.multiprocessors) * kernel.tile_n() / kernel.tile_m());
  plan.group = std::max(1, int(std::lround(square / plan.cluster)));
  return true;
}

}  // namespace tcgemm::plan
