// Cost model of the GEMV kernels on Hopper: the bytes of b from memory, and those of a, which every
// tile reads from L2. docs/dev/kernels/few-rows.md has the measurements.
#include <algorithm>
#include <cmath>
#include <optional>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kStart = 1.0;         // microseconds: the launch, the first loads and the sums
constexpr double kCluster = 0.9;       // microseconds: the sums of a cluster
constexpr double kFp8Cluster = 2.0;    // the same where mma.sync widens 16 rows of 8 bits
constexpr double kNextWave = 2.0;      // microseconds, if not all CTAs run at one time
constexpr double kNextClusters = 1.3;  // microseconds for each wave of clusters after the first
constexpr double kIdle = 0.35;         // share of the time that idle multiprocessors add
constexpr double kL2Rate = 22e12;      // bytes a second, of what another tile has read from memory
constexpr double kCtaRate = 42e9;      // bytes a second that a CTA loads, however few there are
constexpr double kElements = 1.6;      // factor if an operand is not loaded in vectors of 16 bytes

// Packed weights. A multiprocessor has several CTAs, so the microseconds are those of one of them:
// its start and its end, and a block of each of its warps. Measured on an H200 with int4, the rate
// of the rows on an H100; the factors of the other formats are means. The kernels of sm_80 count as
// those, until their memory bounds them.
constexpr double kPackedStart = 0.8;      // microseconds: the launch
constexpr double kPackedCta = 1.55;       // microseconds
constexpr double kPackedShared = 0.76;    // share of a block's time if CTAs share a multiprocessor
constexpr double kPackedRate = 30e9;      // bytes of the weight a second, of a multiprocessor
constexpr double kPackedRowRate = 100e9;  // bytes of the rows of a, which lie in L2
constexpr double kPackedTable = 1.35;     // factor of the lookups of a table
constexpr double kPackedEightBits = 1.5;  // factor of 8-bit codes

double packed_block(const GemmConfig& config, const Problem& problem) {
  const bool few = config.gemv_rows == 8;
  const double block = config.warpgroups == 4 ? (few ? 0.61 : 0.93)
                       : config.n == 32       ? (few ? 0.405 : 0.55)
                                              : (few ? 0.555 : 0.76);
  return block * (problem.packed.format == WeightFormat::table4 ? kPackedTable
                  : config.weight_bits == 8                     ? kPackedEightBits
                                                                : 1.0);
}

// `row_bytes` and `column_bytes` are those of a CTA, of a and of the weight.
double packed_time(const GemmConfig& config, const Problem& problem, const Device& device,
                   const LaunchConfig& launch, double row_bytes, double column_bytes) {
  const double ctas = std::ceil(launch.waves);  // of a multiprocessor, one after another or at once
  const double at_once = std::min<double>(ctas, config.least_ctas());
  const double blocks =
      double(ceil_div(ceil_div(problem.k, config.tile_k()), config.threads() / 32));
  const double rounds =
      std::max(std::ceil(ctas / at_once), at_once > 1 ? kPackedShared * ctas : ctas);
  const double of_memory = device.memory_rate / device.multiprocessors;
  const double rate = config.arch == Arch::sm80 ? std::min(kPackedRate, of_memory) : kPackedRate;
  const double bytes_time = ctas * (row_bytes / kPackedRowRate + column_bytes / rate) * 1e6;
  return kPackedStart + ctas * kPackedCta / at_once +
         std::max(rounds * blocks * packed_block(config, problem), bytes_time);
}

}  // namespace

std::optional<LaunchConfig> fit_gemv(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     int cluster) {
  const auto in_vectors = [](const CandidateOperand& operand) {
    return operand.can_load(Major::K) && operand.cp_async_readable();
  };
  LaunchConfig launch;
  launch.cluster = config.gemv_cluster();
  launch.vector_a = in_vectors(operands.a);
  launch.vector_b = in_vectors(operands.b);
  // cp.async copies elements of 4 and 8 bytes by themselves. tf32 operands are copied K-major
  // before, as by the other kernels.
  const bool copies_elements = config.accumulator == DType::f64;
  const bool fits = copies_elements || (launch.vector_a && launch.vector_b);
  if (!fits || problem.batch_invariant || config.shared_bytes() > device.shared_bytes ||
      (cluster != 0 && cluster != launch.cluster))
    return std::nullopt;
  launch.tiles_m = ceil_div(problem.m, config.tile_m());
  launch.tiles_n = ceil_div(problem.n, config.tile_n());
  const double tiles = double(launch.tiles_m) * double(launch.tiles_n) * double(problem.batch);
  // A CTA has one tile.
  constexpr double kMostCtas = 2147483647;
  if (tiles * launch.cluster > kMostCtas) return std::nullopt;
  launch.grid = int(tiles) * launch.cluster;
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
    launch.microseconds =
        packed_time(config, problem, device, launch, rows * row_bytes / launch.cluster,
                    columns * column_bytes / launch.cluster);
    return launch;
  }
  const double cta_bytes = tile_bytes / launch.cluster;
  const double slow = launch.vector_a && launch.vector_b ? 1.0 : kElements;
  const double idle = std::max(0.0, 1 - launch.waves);
  const double bytes_time =
      std::max((1 + kIdle * idle) * from_memory / device.memory_rate + again / kL2Rate,
               std::ceil(launch.waves) * cta_bytes / kCtaRate);
  const double next_waves = std::ceil(launch.waves) - 1;
  launch.microseconds = kStart + slow * bytes_time * 1e6;
  if (next_waves > 0) launch.microseconds += kNextWave;
  if (launch.cluster > 1)
    launch.microseconds +=
        (bits(config.input) == 8 ? kFp8Cluster : kCluster) + next_waves * kNextClusters;
  return launch;
}

}  // namespace tcgemm::plan
