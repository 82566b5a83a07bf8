// What an mma.sync kernel costs: on its own architectures, and as the fallback on Hopper.
#include <algorithm>
#include <cmath>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kLaunch = 2.5;       // microseconds
constexpr double kHopperShare = 0.6;  // of wgmma's rate that mma.sync reaches on an H200
constexpr double kElementwise = 6.0;  // times slower where operands are read element by element
constexpr double kFill = 1.0;         // microseconds to the first product of a tile

// Of the tensor rate, for tiles that reuse less of what they load.
double efficiency(const Kernel& kernel) {
  const int area = kernel.tile_m() * kernel.tile_n();
  return area >= 128 * 256 ? 0.9 : area >= 128 * 128 ? 0.8 : 0.5;
}

}  // namespace

bool fit_sm80(const Kernel& kernel, const Problem& problem, const Device& device,
              const Inputs& inputs, Plan& plan) {
  if (!inputs.serve(kernel.layout)) return false;
  if (kernel.shared_bytes() > device.shared_bytes) return false;
  plan.vector_a = inputs.prepare_a || inputs.a.direct();
  plan.vector_b = inputs.prepare_b || inputs.b.direct();
  plan.cluster = 1;
  plan.tiles_m = ceil_div(problem.m, kernel.tile_m());
  plan.tiles_n = ceil_div(problem.n, kernel.tile_n());
  const double tiles = double(plan.tiles_m) * double(plan.tiles_n) * double(problem.batch);
  plan.waves = tiles / device.multiprocessors;
  if (tiles > 2147483647.0) return false;
  plan.grid = int(tiles);
  plan.group = 8;

  const double share = device.compute_capability == 90 ? kHopperShare : 1.0;
  const double rate = device.tensor_rate * share * efficiency(kernel) / device.multiprocessors;
  const double work = 2.0 * kernel.tile_m() * kernel.tile_n() *
                      double(ceil_div(problem.k, kernel.tile_k()) * kernel.tile_k());
  const double slow = plan.vector_a && plan.vector_b ? 1.0 : kElementwise;
  plan.microseconds = kLaunch + std::ceil(plan.waves) * (work / rate * 1e6 * slow + kFill);
  return true;
}

}  // namespace tcgemm::plan
