// What a TMA + wgmma kernel costs on Hopper.
//
// A block spends per k-block the larger of the tensor cores' time and the time to take the operands
// in from L2; per tile a fill and an epilogue; and the grid is as slow as its last wave. All
// constants are clocks of one multiprocessor, fitted to an H200 (benchmarks/results; the reasons
// stand beside them).
#include <algorithm>
#include <cmath>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kClock = 1.7e3;        // clocks a microsecond, between boost and the power cap
constexpr double kFmaPerClock = 2048;   // f16/bf16 tensor cores of one multiprocessor
constexpr double kBytesPerClock = 64;   // L2 to one multiprocessor
constexpr double kLaunch = 2.0;         // microseconds: launch, barriers, first fill
constexpr double kFill = 700;           // clocks from the first load to the first wgmma of a tile
constexpr double kBlockOverhead = 20;   // clocks a k-block: barrier wait, issue
constexpr double kPlainStore = 0.045;   // clocks an element of the tile: stmatrix and TMA
constexpr double kGeneralStore = 0.16;  // the slab and its options
// Near the power cap, multiprocessors that idle in the last wave give their power to the others:
// the wave counts half. Smaller problems do not reach the cap.
constexpr double kPowerBoundFlops = 3e10;

double wave_time(double waves, double flops) {
  const double whole = std::ceil(waves);
  return flops < kPowerBoundFlops ? whole : 0.5 * (whole + waves);
}

double kernel_time(const Kernel& kernel, const Problem& problem, const Plan& plan) {
  const double depth = double(ceil_div(problem.k, kernel.tile_k()));
  const double area = double(kernel.tile_m()) * kernel.tile_n();
  // One warpgroup alone cannot keep the tensor cores busy: its waits are nobody's work.
  const double issue = kernel.warpgroups == 1 ? 1.12 : 1.0;
  const double math = issue * area * kernel.tile_k() / kFmaPerClock;
  const double bytes_in = (kernel.tile_m() + double(kernel.tile_n()) / plan.cluster) *
                          kernel.tile_k() * bytes(kernel.input);
  const double load = bytes_in / kBytesPerClock;
  const double store = area * (plan.store_tma ? kPlainStore : kGeneralStore);
  const double tile = depth * (std::max(math, load) + kBlockOverhead) + kFill + store;
  return kLaunch + wave_time(plan.waves, problem.flops()) * tile / kClock;
}

}  // namespace

bool fit_sm90(const Kernel& kernel, const Problem& problem, const Device& device,
              const Inputs& inputs, Plan& plan) {
  const bool direct_a = inputs.prepare_a || inputs.a.direct();
  const bool direct_b = inputs.prepare_b || inputs.b.direct();
  if (!direct_a || !direct_b || problem.k == 0 || kernel.layout != inputs.layout()) return false;
  if (kernel.shared_bytes() > device.shared_bytes) return false;

  plan.store_tma = problem.plain() && bits(problem.out.dtype) == 16 &&
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
