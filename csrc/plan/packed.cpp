// Cost model of the wgmma kernels with a packed weight. The decoder bounds their k-blocks, or wgmma
// that waits for it, and not the loads. docs/dev/kernels/cost-models.md says how the constants were
// fitted to times of an H200.
#include "plan/packed.h"

#include <algorithm>
#include <cmath>

#include "plan/slices.h"

namespace tcgemm::plan {
namespace {

constexpr double kStart = 1.85;   // microseconds: the launch
constexpr double kFill = 1.75;    // microseconds a tile, without its store
constexpr double kFill160 = 0.9;  // added with 160 columns and at most so many k-blocks
constexpr std::int64_t kShortBlocks = 8;
constexpr double kClock = 2063;  // clocks in a microsecond of an H200 that is not busy

// A k-block takes longer where more multiprocessors are busy, and in a product of more FLOP, in
// which the clock falls: the share that is added if all are busy, and from kLongFlops on.
constexpr double kBusy = 0.21;
constexpr double kLong = 0.14;
constexpr double kLongFlops = 1e11;

// Microseconds to add slices.
constexpr double kSums = 65536;         // bytes: the sums of 128x128, for which some constants are
constexpr double kStreamBarrier = 1.3;  // stream-K: until all parts are stored
constexpr double kStreamStore = 1.6;    // for kSums of a tile, which are stored for another CTA
constexpr double kStreamSlice = 0.33;   // for kSums of each slice of a tile, which one CTA reads
constexpr double kAdds = 4.2;           // another kernel
constexpr double kAddsSlice = 0.1;      // the same, for each slice
constexpr double kAddsRate = 1.67e6;    // bytes a microsecond of all sums, stored and read
constexpr double kClusterSlice = 0.25;  // a cluster: its barriers, for each slice
constexpr double kNarrowSlice = 0.45;   // the same with 64 columns
constexpr double kClusterSums = 2.75;   // for kSums that a CTA receives

// Microseconds of a k-block of one CTA alone, with 4 and 8 bits an element.
double block_time(const GemmConfig& config) {
  const bool eight_bits = config.weight_bits == 8;
  switch (config.n) {
    case 64: return eight_bits ? 0.24 : 0.198;
    case 128: return eight_bits ? 0.339 : 0.287;
    case 160: return eight_bits ? 0.404 : 0.338;
    case 192: return eight_bits ? 0.427 : 0.389;
    default: return eight_bits ? 0.569 : 0.527;
  }
}

}  // namespace

double packed_time(const GemmConfig& config, const Problem& problem, const Device& device,
                   const LaunchConfig& launch, double store, double bytes) {
  const std::int64_t blocks = ceil_div(problem.k, config.tile_k());
  const double clusters = double(launch.grid / launch.launched_cluster().size());
  const double waves = launch.stream_k ? 1.0 : std::ceil(launch.waves);
  // With stream-K a CTA has whole tiles and two parts of others.
  const double shared = double(launch.tiles_m * launch.tiles_n) / clusters;
  const double depth =
      launch.stream_k ? shared * double(blocks) : waves * double(ceil_div(blocks, launch.slices));
  const double parts = launch.stream_k ? std::floor(shared) + 2 : waves;
  const double resident = double(launch.grid) / device.multiprocessors;
  const double busy = resident * (launch.stream_k ? 1.0 : std::max(1.0, launch.waves) / waves);
  const double flops = problem.flops() / (launch.stream_k ? 1 : launch.stored_slices());
  const double slower = 1 + kBusy * busy + kLong * std::min(1.0, flops / kLongFlops);
  const double cluster = launch.cluster.size() > 1 ? kPackedCluster : 1.0;
  const double rate = device.hopper.clock / kH200Rates.clock;
  const double mainloop = depth * block_time(config) * cluster * slower;
  const bool is_short = config.n == 160 && blocks <= kShortBlocks;
  const double fill = kFill + (is_short ? kFill160 : 0.0);
  const double time = kStart + (mainloop + parts * (fill + store / kClock)) / rate;
  return std::max(time, kStart + bytes / device.memory_rate * 1e6);
}

double packed_sum_time(const GemmConfig& config, const Problem& problem,
                       const LaunchConfig& launch) {
  const int slices = launch.slices;
  const double sums = config.slice_bytes() / kSums;
  if (launch.stream_k) return kStreamBarrier + sums * (kStreamStore + kStreamSlice * slices);
  if (slices == 1) return 0;
  if (!launch.cluster_adds)
    return kAdds + kAddsSlice * slices +
           double(stored_sums_bytes(config, problem, launch)) / kAddsRate;
  const int warps = 4 * config.row_groups();
  const double received = double(slices - 1) * ceil_div(warps, slices) / warps;
  return slices * (config.n == 64 ? kNarrowSlice : kClusterSlice) + kClusterSums * sums * received;
}

// Measured on an H200 and an H100. Two CTAs that share a multiprocessor are as fast as one of them.
// Two of a cluster of four share one, because they are close together.
double packed_mma_block(const GemmConfig& config, const LaunchConfig& launch,
                        const Device& device) {
  const bool is_shared =
      launch.grid > device.multiprocessors || (launch.cluster_adds && launch.slices > 2);
  return config.n == 32 ? (is_shared ? 0.5 : 0.28) : (is_shared ? 0.41 : 0.22);
}

}  // namespace tcgemm::plan
