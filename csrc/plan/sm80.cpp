// What an mma.sync kernel costs: on its own architectures, and as the fallback on Hopper.
#include <algorithm>
#include <cmath>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kLaunch = 2.5;  // microseconds
constexpr double kFill = 1.0;    // microseconds to the first product of a tile
// Times slower where operands are read element by element, of 16 bits.
constexpr double kElementwise = 6.0;

// Of the tensor rate of the dtype: on an H200, of wgmma's, which mma.sync does not reach. There is
// no fp8 mma.sync in it: the compiler converts to f16.
double share(const Device& device, DType input) {
  if (device.compute_capability != 90) return 1.0;
  return is_fp8(input) ? 0.15 : 0.6;
}

// The same for tiles that reuse less of what they load. With a sparse a there are half as many
// products for what is loaded of b, and shared memory has no more to give.
double efficiency(const GemmConfig& config) {
  const int area = config.tile_m() * config.tile_n();
  const double share = area >= 128 * 256 ? 0.9 : area >= 128 * 128 ? 0.8 : 0.5;
  return config.sparse ? 0.8 * share : share;
}

// Can it be read, and how: in words where it is laid out for that. Kernels for which it comes
// K-major alone (`turns`) gather operands of the other major as they do strided ones.
bool readable(const CandidateOperand& input, Major major, bool turns, bool& vector) {
  const bool serves = input.serves(major);
  vector = serves && input.reads_vectors();
  return serves || (turns && !input.converts && !input.prepared);
}

}  // namespace

bool fit_sm80(const GemmConfig& config, const Problem& problem, const Device& device,
              const CandidateOperands& inputs, Plan& plan) {
  const bool turns_b = k_major_only(config.input), turns_a = turns_b || config.sparse;
  if (!readable(inputs.a, major_a(config.layout), turns_a, plan.vector_a)) return false;
  if (!readable(inputs.b, major_b(config.layout), turns_b, plan.vector_b)) return false;
  if (config.shared_bytes() > device.shared_bytes) return false;
  plan.cluster = 1;
  plan.tiles_m = ceil_div(problem.m, config.tile_m());
  plan.tiles_n = ceil_div(problem.n, config.tile_n());
  const double tiles = double(plan.tiles_m) * double(plan.tiles_n) * double(problem.batch);
  plan.waves = tiles / device.multiprocessors;
  if (tiles > 2147483647.0) return false;
  plan.grid = int(tiles);
  plan.raster_group = 8;

  const double rate = tcgemm::rate(device, config.input) * share(device, config.input) *
                      efficiency(config) / device.multiprocessors;
  const double products = config.sparse ? 0.5 : 1.0;
  const double work = 2.0 * products * config.tile_m() * config.tile_n() *
                      double(ceil_div(problem.k, config.tile_k()) * config.tile_k());
  const double slow = plan.vector_a && plan.vector_b ? 1.0 : kElementwise * 16 / bits(config.input);
  plan.microseconds = kLaunch + std::ceil(plan.waves) * (work / rate * 1e6 * slow + kFill);
  return true;
}

}  // namespace tcgemm::plan
