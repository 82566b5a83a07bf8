// Cost model of the mma.sync kernels: on their own architectures, and as the fallback on Hopper.
#include <algorithm>
#include <cmath>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kLaunch = 2.5;  // microseconds
constexpr double kFill = 1.0;    // microseconds until the first mma of a tile
// Microseconds an element of the tile: gelu, gelu_tanh and silu in the rolled epilogue.
constexpr double kActivation = 1.6e-4;
constexpr double kTerms = 3e-4;  // the same on Hopper with any term
// Factor if operands of 16 bits are loaded one element at a time. The products of f64 take longer
// than such loads.
constexpr double kElementwise = 6.0;
constexpr double kElementwiseF64 = 1.02;
// A k-block of 128 rows of a packed weight takes so many microseconds to decode. This is counted in
// instructions, not measured.
constexpr double kDecode = 0.28;

// The share of the device's tensor rate that mma.sync reaches. On Hopper that rate is wgmma's, and
// there is no fp8 mma.sync: the compiler converts to f16. The f64 instruction of sm_80 has half of
// the rate that kernels/sm90/fp64 reaches. From Hopper on, the compiler unpacks s4 and u4 to s8
// with many instructions.
double share(const Device& device, DType input) {
  if (is_int4(input) && device.compute_capability >= 90) return 0.03;
  if (device.compute_capability != 90) return 1.0;
  if (input == DType::f64) return 0.5;
  return is_fp8(input) ? 0.15 : 0.6;
}

// The share that a tile of this size reaches: smaller tiles reuse less of what they load. With a
// 2:4 operand a tile does half the mma work for the same bytes of b, and shared memory limits it.
double efficiency(const GemmConfig& config) {
  if (config.input == DType::f64) return config.warpgroups > 1 ? 0.85 : 0.75;
  if (config.has_packed_weight()) return config.n > 64 ? 0.7 : config.n > 32 ? 0.65 : 0.45;
  const int area = config.tile_m() * config.tile_n();
  const double share = area >= 128 * 256 ? 0.9 : area >= 128 * 128 ? 0.8 : 0.5;
  return config.is_sparse() ? 0.8 * share : share;
}

// Can a kernel read the operand? `vector` becomes true if 16-byte vectors are possible. Kernels
// that have one instance for all majors (`gathers`) load any other layout one element at a time.
bool can_read(const CandidateOperand& input, Major major, bool gathers, bool& vector) {
  const bool can_load = input.can_load(major);
  vector = can_load && input.cp_async_readable();
  return can_load || (gathers && !input.needs_conversion && !input.repacked);
}

}  // namespace

std::optional<LaunchConfig> fit_sm80(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster) {
  LaunchConfig launch;
  // Beside a packed weight the other operand is loaded in vectors, or copied before.
  const bool packed = config.has_packed_weight();
  const bool gathers_b = k_major_only(config.input), gathers_a = gathers_b || config.is_sparse();
  if (!can_read(operands.a, major_a(config.layout), gathers_a, launch.vector_a))
    return std::nullopt;
  if (!can_read(operands.b, major_b(config.layout), gathers_b, launch.vector_b))
    return std::nullopt;
  if (packed && !launch.vector_b) return std::nullopt;
  if (config.shared_bytes() > device.shared_bytes || cluster.value_or(ClusterShape{}).size() > 1)
    return std::nullopt;
  launch.tiles_m = ceil_div(problem.m, config.tile_m());
  launch.tiles_n = ceil_div(problem.n, config.tile_n());
  const double tiles = double(launch.tiles_m) * double(launch.tiles_n) * double(problem.batch);
  launch.waves = tiles / device.multiprocessors;
  if (tiles > 2147483647.0) return std::nullopt;
  launch.grid = int(tiles);

  const double rate = tcgemm::rate(device, config.input) * share(device, config.input) *
                      efficiency(config) / device.multiprocessors;
  const double mma_share = config.is_sparse() ? 0.5 : 1.0;
  const double k_blocks = double(ceil_div(problem.k, config.tile_k()));
  const double work =
      2.0 * mma_share * config.tile_m() * config.tile_n() * config.tile_k() * k_blocks;
  const double slow = launch.vector_a && launch.vector_b ? 1.0
                      : config.input == DType::f64       ? kElementwiseF64
                                                         : kElementwise * 16 / bits(config.input);
  const bool is_hopper = device.compute_capability == 90;
  const double element = (is_transcendental(problem.activation) ? kActivation : 0.0) +
                         (is_hopper && problem.has_epilogue_terms() ? kTerms : 0.0);
  const double epilogue = element * config.tile_m() * config.tile_n();
  const double multiply = std::max(work / rate * 1e6 * slow, packed ? kDecode * k_blocks : 0.0);
  launch.microseconds = kLaunch + std::ceil(launch.waves) * (multiply + kFill + epilogue);
  return launch;
}

}  // namespace tcgemm::plan
