// Cost model of the thin kernels, for many rows, few columns and a short k: the bytes of a and of
// the result, beside what each tile takes. docs/dev/kernels/thin.md has the measurements.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kStart = 3.0;   // microseconds: the launch, b, and the first rows
constexpr double kBytes = 0.67;  // share of the time of the bytes that nothing hides
constexpr double kTile = 0.148;  // microseconds of a multiprocessor for a tile of 32 columns
// The same for 64 columns. It was 0.2, but the other kernels take longer than they are estimated.
constexpr double kWideTile = 0.17;
constexpr double kF64Tile = 0.18;  // the same two for sums in f64
constexpr double kWideF64Tile = 0.32;
constexpr double kF64Product = 0.018;  // microseconds for 16 k and 8 columns of 64 rows in f64
constexpr double kElements = 0.1;  // added for rows of 16-bit elements that are no whole vectors

}  // namespace

std::optional<LaunchConfig> fit_thin(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster) {
  const auto reads = [](const CandidateOperand& operand) {
    return !operand.repacked && !operand.needs_conversion;
  };
  if (!reads(operands.a) || !reads(operands.b) || problem.batch > 1 || problem.k == 0 ||
      problem.n > config.tile_n() || problem.k > config.tile_k() || problem.batch_invariant ||
      config.shared_bytes() > device.shared_bytes || cluster.value_or(ClusterShape{}).size() > 1)
    return std::nullopt;
  LaunchConfig launch;
  launch.vector_a = operands.a.can_load(Major::K) && operands.a.layout.cp_async_readable();
  launch.vector_b = true;  // it is read once
  launch.tiles_m = ceil_div(problem.m, config.tile_m());
  launch.tiles_n = 1;
  const std::int64_t most = std::int64_t(device.multiprocessors) * config.least_ctas();
  launch.grid = int(std::min(launch.tiles_m, most));
  launch.waves = double(launch.tiles_m) / double(device.multiprocessors);
  launch.raster_group = 1;

  const bool is_wide = config.tile_n() > 32, is_f64 = config.accumulator == DType::f64;
  double tile = is_f64 ? (is_wide ? kWideF64Tile : kF64Tile) : (is_wide ? kWideTile : kTile);
  if (is_f64) tile += kF64Product * double(ceil_div(problem.k, 16) * ceil_div(problem.n, 8));
  if (!is_f64 && (!launch.vector_a || problem.k % 4 != 0)) tile += kElements;
  const double moved =
      result_bytes(problem) + matrix_bytes(problem[Slot::a], problem.m, problem.k, 1);
  launch.microseconds = kStart + tile * launch.waves + kBytes * 1e6 * moved / device.memory_rate;
  return launch;
}

}  // namespace tcgemm::plan
