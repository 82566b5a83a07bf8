// Cost model of the GEMV kernels on Hopper: the bytes of b from memory, and the bytes of a, which
// every tile reads from L2. docs/dev/kernels/few-rows.md has the measurements.
#include <algorithm>
#include <cmath>
#include <optional>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kStart = 1.0;         // microseconds: the launch, the first loads and the sums
constexpr double kAfterPass = 0.7;     // microseconds: nothing is loaded before a pass has ended
constexpr double kCluster = 0.9;       // microseconds: the sums of a cluster
constexpr double kFp8Cluster = 2.0;    // the same where mma.sync widens 16 rows of 8 bits
constexpr double kNextWave = 2.0;      // microseconds, if not all CTAs run at one time
constexpr double kNextClusters = 1.3;  // microseconds for each wave of clusters after the first
constexpr double kIdle = 0.35;         // share of the time that idle multiprocessors add
constexpr double kL2Rate = 22e12;      // bytes a second, of what another tile has read from memory
// Of many tiles of rows, whose operands are small: the start, so that it compares with that of the
// TMA kernels, and bytes a second that all CTAs read. No time of a GEMV kernel is shorter.
constexpr double kManyStart = 3.3;
constexpr double kManyL2Rate = 12e12, kManyL2Rate8 = 8e12;
constexpr double kElements = 1.6;  // factor if an operand is not loaded in vectors of 16 bytes

// Packed weights. The kernels of sm_80 count as kernels of Hopper, until their memory bounds them.
constexpr double kPackedStart = 0.8;   // microseconds: the launch
constexpr double kPackedSums = 1.4;    // microseconds: the sums of a cluster
constexpr double kPackedTable = 1.12;  // factor of the lookups of a table
// Microseconds for a table of pairs, which a CTA fills at its start. With four warpgroups a
// multiprocessor has no space for the next CTA, whose table would be filled ahead.
constexpr double kTableStart = 0.6;
constexpr double kTableStartOfFour = 1.05;
constexpr double kPackedL2Rate = 75e9;  // bytes a second that a multiprocessor reads from L2

// Bytes a second that all multiprocessors read from L2, with many tiles of rows.
constexpr double kPackedManyRate = 5.2e12;

// Microseconds of a CTA with int4, measured on an H200, and with 32 rows on an H100: its start and
// end, and a block of each of its warps. Several CTAs of a multiprocessor take `shared` of the time
// that they take one after another. A CTA with 8 rows, 32 columns and four warps is in a cluster.
struct PackedTimes {
  double cta, block, shared;
  double short_eight, eight;  // with 8 bits: `cta` of one block a warp, and the factor of a block
};

PackedTimes packed_times(const GemmConfig& config) {
  if (config.gemv_rows == 32) return {1.9, 0.61, 1.0, 1.05, 1.45};
  if (config.gemv_rows == 16)
    return config.warpgroups == 4   ? PackedTimes{2.55, 0.71, 1.0, 0.9, 1.45}
           : config.warpgroups == 2 ? PackedTimes{1.4, 0.425, 0.87, 0.8, 1.45}
                                    : PackedTimes{1.4, 0.3, 0.62, 1.4, 1.2};
  if (config.n == 64)
    return config.warpgroups == 2 ? PackedTimes{1.2, 0.5, 0.88, 1.2, 1.2}
                                  : PackedTimes{1.25, 0.32, 0.72, 1.25, 1.5};
  return config.warpgroups == 4   ? PackedTimes{1.9, 0.53, 1.0, 0.85, 1.5}
         : config.warpgroups == 2 ? PackedTimes{1.4, 0.35, 0.87, 1.0, 1.07}
                                  : PackedTimes{1.2, 0.28, 0.46, 1.2, 1.25};
}

// CTAs that a multiprocessor has space for at one time.
int packed_ctas(const GemmConfig& config, const Problem& problem, const Device& device) {
  return std::min(config.least_ctas(),
                  int(device.shared_bytes / config.shared_bytes(problem.packed.format)));
}

// Of a CTA, where there is one tile of rows: its start in microseconds, so that it compares with
// that of the TMA kernels, and the bytes a second that it loads and multiplies.
struct CtaTimes {
  double start, rate;
};

CtaTimes one_tile_times(const GemmConfig& config) {
  if (config.gemv_rows == 8 && bits(config.input) == 8) return {3.2, 72e9};
  if (config.gemv_rows == 8 && config.input == DType::tf32) return {3.2, 45e9};
  return {kStart, 42e9};
}

// Bytes a second that a CTA loads and multiplies where there are many tiles of rows.
double many_tiles_rate(DType input) {
  return bits(input) == 8 ? 120e9 : input == DType::tf32 ? 60e9 : 100e9;
}

// Microseconds of two resources that are in use at the same time: near the larger one, and an
// eighth more if both are equal.
double of_both(double x, double y) {
  const auto cube = [](double value) { return value * value * value; };
  return std::cbrt(std::sqrt(cube(x * x) + cube(y * y)));
}

// CTAs of the multiprocessor that has most of them, one after another or at once. While clusters of
// four need up to half of the space of the GPU, no multiprocessor has more than half of its CTAs.
// With more clusters some have all.
double most_ctas(const GemmConfig& config, const Device& device, const LaunchConfig& launch,
                 int space) {
  if (config.gemv_cluster() < 4) return std::ceil(launch.waves);
  const double rounds = double(launch.grid) / (4 * device.hopper.clusters_of_four * space);
  return space * (rounds <= 0.5 ? 0.5 : std::ceil(rounds));
}

// `row_bytes` and `column_bytes`: of a and of the weight, for one CTA.
double packed_time(const GemmConfig& config, const Problem& problem, const Device& device,
                   const LaunchConfig& launch, double row_bytes, double column_bytes) {
  const PackedTimes times = packed_times(config);
  const int space = packed_ctas(config, problem, device);
  const double ctas = most_ctas(config, device, launch, space);
  const double at_once = std::min<double>(ctas, space);
  const int warps = config.threads() / 32 * config.gemv_cluster();
  const double blocks = double(ceil_div(ceil_div(problem.k, config.tile_k()), warps));
  const bool has_table = problem.packed.format == WeightFormat::table4;
  const double table = config.warpgroups == 4 ? kTableStartOfFour : kTableStart;
  const bool has_eight = config.weight_bits == 8;
  const bool is_short = has_eight && blocks <= 1;
  const double cta = (is_short ? times.short_eight : times.cta) + (has_table ? table : 0.0);
  const double block = times.block * (has_table ? kPackedTable : has_eight ? times.eight : 1.0);
  const double rounds =
      std::max(std::ceil(ctas / at_once), at_once > 1 ? times.shared * ctas : ctas);
  const double rate = device.memory_rate / device.multiprocessors;
  const double waves = std::max(1.0, launch.waves);
  // With 8 rows multiprocessors without a CTA leave their share of memory to the others. The times
  // of more rows were fitted without that.
  const double shares = config.gemv_rows > 8 ? waves : launch.waves;
  // Many tiles of rows read the weight again, from L2.
  const double again = launch.tiles_m > 1 ? launch.grid / kPackedManyRate : 0.0;
  const double bytes_time = 1e6 * std::max({shares * column_bytes / rate,
                                            waves * (row_bytes + column_bytes) / kPackedL2Rate,
                                            again * (row_bytes + column_bytes)});
  const double cluster = config.gemv_cluster() > 1 ? kPackedSums * std::ceil(ctas / at_once) : 0.0;
  return kPackedStart + cluster +
         of_both(ctas * cta / at_once + rounds * blocks * block, bytes_time);
}

}  // namespace

std::optional<LaunchConfig> fit_gemv(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster) {
  const auto in_vectors = [](const CandidateOperand& operand) {
    return operand.can_load(Major::K) && operand.cp_async_readable();
  };
  LaunchConfig launch;
  launch.cluster = {config.gemv_cluster(), 1};
  const int ctas = launch.cluster.size();
  launch.vector_a = in_vectors(operands.a);
  launch.vector_b = in_vectors(operands.b);
  // cp.async copies elements of 4 and 8 bytes by themselves. tf32 operands are copied K-major
  // before, as by the other kernels.
  const bool copies_elements = config.accumulator == DType::f64;
  const bool fits = copies_elements || (launch.vector_a && launch.vector_b);
  if (!fits || problem.batch_invariant || config.shared_bytes() > device.shared_bytes ||
      cluster.value_or(launch.cluster) != launch.cluster)
    return std::nullopt;
  launch.tiles_m = ceil_div(problem.m, config.tile_m());
  launch.tiles_n = ceil_div(problem.n, config.tile_n());
  const double tiles = double(launch.tiles_m) * double(launch.tiles_n) * double(problem.batch);
  // A CTA has one tile.
  constexpr double kMostCtas = 2147483647;
  if (tiles * ctas > kMostCtas) return std::nullopt;
  launch.grid = int(tiles) * ctas;
  launch.waves = double(launch.grid) / device.multiprocessors;
  launch.raster_group = 1;

  const double row_bytes = double(problem.k) * bytes(config.input);
  // The bytes of a row of b, which is a column of the result.
  const double column_bytes =
      problem.has_packed_weight()
          ? double(PackedLayout{problem.n, problem.k, problem.packed}.bytes()) / problem.n
          : row_bytes;
  const double matrices = double(problem.batch);
  const double rows = double(std::min<std::int64_t>(problem.m, config.tile_m()));
  const double columns = double(std::min<std::int64_t>(problem.n, config.tile_n()));
  const double from_memory = matrices * (problem.m * row_bytes + problem.n * column_bytes);
  const double tile_bytes = rows * row_bytes + columns * column_bytes;
  const double again = std::max(0.0, tiles * tile_bytes - from_memory);
  if (config.has_packed_weight()) {
    launch.microseconds = packed_time(config, problem, device, launch, rows * row_bytes / ctas,
                                      columns * column_bytes / ctas);
    return launch;
  }
  const double slow = launch.vector_a && launch.vector_b ? 1.0 : kElements;
  const double idle = std::max(0.0, 1 - launch.waves);
  const double waves = std::ceil(launch.waves), next_waves = waves - 1;
  if (launch.tiles_m > 1) {
    // A CTA multiplies whole tiles, however few of their rows and columns are inside.
    const double whole_tile = (config.tile_m() + config.tile_n()) * row_bytes;
    const double l2_rate = bits(config.input) == 8 ? kManyL2Rate8 : kManyL2Rate;
    launch.microseconds =
        kManyStart + slow * 1e6 *
                         (waves * whole_tile / ctas / many_tiles_rate(config.input) +
                          tiles * whole_tile / l2_rate);
  } else {
    const double memory_time =
        (1 + kIdle * idle) * from_memory / device.memory_rate + again / kL2Rate;
    // Columns outside of the matrix take as long as those inside.
    const CtaTimes cta = one_tile_times(config);
    const double cta_time = waves * (rows + config.tile_n()) * row_bytes / ctas / cta.rate;
    launch.microseconds = std::max(
        {kManyStart, kStart + slow * memory_time * 1e6, cta.start + slow * cta_time * 1e6});
  }
  if (operands.a.repacked || operands.b.repacked) launch.microseconds += kAfterPass;
  if (next_waves > 0) launch.microseconds += kNextWave;
  if (ctas > 1)
    launch.microseconds +=
        (bits(config.input) == 8 ? kFp8Cluster : kCluster) + next_waves * kNextClusters;
  return launch;
}

}  // namespace tcgemm::plan
