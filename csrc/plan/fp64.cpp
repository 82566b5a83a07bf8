// What a kernel that adds up f64 costs on Hopper: mma.sync, fed by cp.async, persistent.
//
// The tensor cores take 64 clocks for an instruction, so that the depth of a tile is all that
// counts: operands arrive in an eighth of that time from wherever they lie.
#include <algorithm>
#include <cmath>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kClock = 1900;        // clocks a microsecond: f64 stays below the power cap
constexpr double kFmaPerClock = 128;   // of one multiprocessor
constexpr double kLaunch = 1.6;        // microseconds
constexpr double kFill = 2000;         // clocks a tile: from the first load to the first product
constexpr double kBlockOverhead = 60;  // clocks a k-block that the two warps of a scheduler show
constexpr double kStore = 0.15;        // clocks an element of the tile to store it
constexpr double kOptions = 0.4;       // the same with an epilogue
constexpr double kElementwise = 1.02;  // where operands are not read in words
// The same of one warpgroup, whose warps have nobody to fill their gaps; f32 has to be converted.
constexpr double kAlone = 1.39;
constexpr double kAloneF32 = 1.65;

}  // namespace

bool fit_f64(const GemmConfig& config, const Problem& problem, const Device& device,
             const CandidateOperands& inputs, Plan& plan) {
  if (!inputs.serve(config.layout) || config.shared_bytes() > device.shared_bytes) return false;
  plan.vector_a = inputs.a.direct();
  plan.vector_b = inputs.b.direct();
  plan.tiles_m = ceil_div(problem.m, config.tile_m());
  plan.tiles_n = ceil_div(problem.n, config.tile_n());
  const double tiles = double(plan.tiles_m) * double(plan.tiles_n) * double(problem.batch);
  plan.waves = tiles / device.multiprocessors;
  plan.grid = int(std::min(tiles, double(device.multiprocessors)));
  plan.raster_group = raster_group(config, device);

  const double area = double(config.tile_m()) * config.tile_n();
  const double alone = config.warpgroups > 1        ? 1.0
                       : config.input == DType::f32 ? kAloneF32
                                                    : kAlone;
  const double math = alone * area * config.tile_k() / kFmaPerClock + kBlockOverhead;
  const double slow = plan.vector_a && plan.vector_b ? 1.0 : kElementwise;
  const double tile = double(ceil_div(problem.k, config.tile_k())) * math * slow + kFill +
                      area * (problem.has_default_epilogue() ? kStore : kOptions);
  plan.microseconds = kLaunch + std::ceil(plan.waves) * tile / kClock;
  return true;
}

}  // namespace tcgemm::plan
