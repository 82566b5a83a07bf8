// Cost model of the TMA + wgmma kernels on Hopper. docs/dev/kernels/cost-models.md says how its
// constants were fitted, and how good it is.
#include "plan/sm90_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/memory.h"
#include "plan/packed.h"
#include "plan/slices.h"
#include "plan/store_time.h"

namespace tcgemm::plan {
namespace {

// A CTA spends per k-block the larger of two times: the time of the tensor cores, and the time of
// loading the operands from L2. Each tile adds a fill and an epilogue, and the last wave decides
// when the grid ends.

// L2 lines for 128 bytes that begin inside a line: inside a sector of 32 bytes, and elsewhere.
constexpr double kMisalignedLines = 2.1;
constexpr double kSectorLines = 1.29;
constexpr int kL2Sector = 32;       // bytes
constexpr double kReceived = 0.28;  // share of such lines that a cluster does not save
// Bytes a clock that L2 delivers to all clusters, of an operand of slices that they do not share.
// CTAs alone ask for the same lines at the same time, and L2 delivers twice as much.
constexpr double kUnsharedRate = 4400;
// Clocks a k-block of CTAs that share b, since the slowest decides, and of clusters of four and
// more, whose loads compete less (but for those of slices).
constexpr double kSharedB = 8;
constexpr double kFourBlocks = -15;
constexpr double kSparseAlone = 1.03;   // factor of a k-block of 2:4 operands without a cluster
constexpr double kGroupedPair = 30;     // of clusters of two whose stages share barriers
constexpr double kLaunch = 2.0;         // microseconds: launch and barriers
constexpr double kCluster = 0.06;       // microseconds: start of a cluster of two; of four twice
constexpr double kColumnsStore = 0.05;  // microseconds: the store warp of EpiloguePath::columns
// Of a cluster's start with one warpgroup, where all rows begin with a line of L2.
constexpr double kNarrowCluster = 0.35;
constexpr double kFill = 1800;         // clocks a tile: from the first load to the first wgmma
constexpr double kBlockOverhead = 76;  // clocks a k-block: barrier, issue, and what is not hidden
constexpr double kPingpongOverhead = 130;  // the same with pingpong
// With 16-bit operands whose rows begin with a sector it grows with the depth of a tile up to that:
// for each k-block of the tile.
constexpr double kPingpongDepth = 2.7;
// Added to a k-block of the RS mainloop in tiles of up to 128 columns: their products are too short
// to hide the transpose.
constexpr double kNarrowTranspose = 120;
constexpr double kGroupedOverhead = 50;  // the same where two stages share their barriers
constexpr double kGridOverhead = 40;     // the same where the grid adds slices: one tile a CTA
// The same of kernels that were fitted before CTAs began their loads earlier: those that share b
// alone (but for the RS mainloop), and those of bits.
constexpr double kOtherLaunch = 1.35;
constexpr double kOtherFill = 2500;
constexpr double kOtherBlockOverhead = 136;
constexpr double kOtherPingpongOverhead = 180;
// The fewest clocks of a k-block of up to 96 columns: for none, and for each column.
constexpr double kNarrowBlock = 260;
constexpr double kGroupedNarrowBlock = 210;  // for none, where two stages share their barriers
constexpr double kNarrowColumn = 0.25;
constexpr double kOneWide = 1.08;      // factor of a k-block of 64x256: one warpgroup issues it
constexpr double kThreeStages = 1.05;  // factor where a tile leaves space for three stages
constexpr double kTraffic = 0.025;     // loads cost power even if their time is hidden
constexpr double kAddSlices = 3.0;     // microseconds: the kernel that adds slices, without data
constexpr double kAddSlice = 0.045;    // microseconds for each slice
constexpr double kGridAdds = 2.6;      // kAddSlices where the grid adds
constexpr double kStreamParts = 1.5;   // times that a CTA fills and stores with stream-K
constexpr double kStreamAlone = 1.3;   // factor of the loads of stream-K without clusters
constexpr double kAddColumns = 4.15;   // the same two with a packed weight
constexpr double kAddColumnsSlice = 0.1;
constexpr double kNarrowColumns = 0.8;   // added if tiles of up to 64 columns store them
constexpr double kAddSlicesRate = 0.18;  // share of L2's rate at which it reads
// Microseconds: the barriers of a cluster that adds slices, and for each slice after the second, of
// tiles of up to so many elements; of wider ones and of split FP32; of its small tiles.
struct SliceTimes {
  int elements;
  double start, slice;
};
constexpr SliceTimes kClusterAdds[] = {{64 * 64, 0.4, 0.05}, {64 * 128, 0.45, 0.1}};
constexpr double kWideAdds = 0.25, kWideAddsSlice = 0.3;
constexpr double kTermsAdds = 0.3, kTermsAddsSlice = 0.14;
constexpr double kClusterDepth = 0.73;       // factor of its mainloops: of none that is busy, and
constexpr double kClusterDepthBusy = 0.57;   // added for the share of busy multiprocessors
constexpr double kNarrowClusterFull = 0.55;  // added for those beyond 0.6, with up to 64x128
constexpr double kClusterTerms = 0.88;       // factor of both with split FP32
constexpr double kClusterSlice = 13.0;       // clocks for 128 bytes of another slice's sums
constexpr double kPackedSlice = 7.0;         // the same with a packed weight
// Near the power cap, the multiprocessors that idle in the last wave save power, and the others run
// faster. So this share of the wave counts only as far as the wave is full. A single wave that is
// not full does not reach the cap, nor do problems of fewer FLOP, scaled to f16's rate.
constexpr double kPowerBoundFlops = 1.1e10;
constexpr double kPartialWave = 0.26;
// Factor of FP8 tiles of two warpgroups and up to 256 columns in products of more FLOP: 128x320,
// 192x192 and pingpong take less power.
constexpr double kFp8PowerFlops = 2e11;
constexpr double kFp8Power = 1.07;

// Power has a cap, so the clock falls as far as the tensor cores are busy. Device has the clock of
// large problems, which keep more than kSlowShare of them busy. Below kFastShare the clock is
// kFastClock times as high.
constexpr double kFastClock = 1.3;
constexpr double kFastShare = 0.3;
constexpr double kSlowShare = 0.7;

// Clocks in a microsecond while `flops` FLOP, scaled to f16's rate, take `clocks` clocks.
double clock_rate(const Device& device, double flops, double clocks) {
  const double share = flops / (2 * kHopperFmaPerClock * device.multiprocessors * clocks);
  const double slow = std::clamp((share - kFastShare) / (kSlowShare - kFastShare), 0.0, 1.0);
  return device.hopper.clock * (slow + (1 - slow) * kFastClock);
}

// The factor of the mainloops of a cluster that adds slices. Its CTAs read at several k and share
// nothing, so L2 delivers more slowly the more of them there are. Instructions, not loads, bound
// block-scaled kernels.
double cluster_depth(const GemmConfig& config, const LaunchConfig& launch, const Device& device) {
  if (!launch.cluster_adds || config.has_packed_weight() || config.block_scaled()) return 1.0;
  const double busy = double(launch.grid) / device.multiprocessors;
  const bool is_narrow = config.warpgroups == 1 && config.n <= 128;
  const double full = is_narrow ? kNarrowClusterFull * std::max(0.0, busy - 0.6) : 0.0;
  return (kClusterDepth + kClusterDepthBusy * busy + full) *
         (config.terms() > 1 ? kClusterTerms : 1.0);
}

// Microseconds in which the CTAs of a cluster that adds slices wait for each other.
double cluster_wait_time(const GemmConfig& config, const LaunchConfig& launch) {
  if (!launch.cluster_adds) return 0;
  if (config.has_packed_weight()) return launch.slices * (config.n == 32 ? 0.35 : 0.25);
  const int others = launch.slices - 2, elements = config.tile_m() * config.tile_n();
  if (config.terms() > 1 && elements <= 64 * 64) return kTermsAdds + kTermsAddsSlice * others;
  for (const SliceTimes& times : kClusterAdds)
    if (config.terms() == 1 && elements <= times.elements)
      return times.start + times.slice * others;
  return kWideAdds + kWideAddsSlice * others;
}

// Clocks in which a CTA of a cluster receives and adds the sums of its warps.
double cluster_sum_clocks(const GemmConfig& config, const LaunchConfig& launch) {
  if (!launch.cluster_adds) return 0;
  const int warps = 4 * config.row_groups(), slices = launch.slices;
  const double received = double(slices - 1) * ceil_div(warps, slices) / warps;
  const double clocks = config.has_packed_weight() ? kPackedSlice : kClusterSlice;
  return received * config.slice_bytes() / 128 * clocks;
}

double wave_time(double waves, double flops) {
  const double share = flops < kPowerBoundFlops || waves <= 1 ? 0.0 : kPartialWave;
  return (1 - share) * std::ceil(waves) + share * waves;
}

// The factor of issue_cost for promoted FP8 sums. It is at least 1, so that fast sums do not take a
// promoted kernel. Without scales of blocks it was fitted to 21 products on an H200, and with them
// to 24 (docs/dev/kernels/cost-models.md). With a scale for each column of b a sum takes two
// instructions.
double promotion_cost(const GemmConfig& config, const Problem& problem) {
  const auto by_tile = [&](double n256, double n192, double n144, double n128) {
    return config.n == 256 ? n256 : config.n == 192 ? n192 : config.n == 144 ? n144 : n128;
  };
  if (!config.block_scaled())
    return config.warpgroups == 1 ? 1.22 : by_tile(1.12, 1.03, 1.0, 1.035);
  const bool column_scales = problem.has(Slot::scale_b) && problem[Slot::scale_b].stride_col != 0 &&
                             problem[Slot::scale_b].shift_col == 0;
  if (config.warpgroups == 1) return column_scales ? 2.0 : 1.3;
  if (config.warpgroups == 3) return column_scales ? 1.88 : 1.19;
  return column_scales ? by_tile(2.13, 2.13, 2.14, 2.23) : by_tile(1.41, 1.29, 1.62, 1.15);
}

// Relative cost of issuing a tile's wgmma; 1.0 is the best dense tile. Three warpgroups are limited
// to 128 registers a thread. Two m64 blocks a warpgroup read b twice. Promotion adds FADDs. The RS
// mainloop adds the time of the transpose. Split-FP32 issues 3 or 6 GEMMs, in alternation if there
// are two warpgroups.
double issue_cost(const GemmConfig& config, const Problem& problem) {
  // wgmma.sp has twice the rate, as far as shared memory delivers b.
  if (config.is_sparse())
    return 0.5 *
           (config.n >= 256   ? 1.13
            : config.n >= 192 ? 1.17
                              : 1.26) *
           (config.warpgroups == 3 ? 1.036 : 1.0);
  if (config.terms() == kBf16Terms) return split_product_count(config.terms()) * 1.165;
  if (config.terms() > 1)
    return split_product_count(config.terms()) * (config.warpgroups == 1 ? 1.5
                                                  : config.n == 256      ? 1.26
                                                                         : 1.3);
  double factor = config.warpgroups == 3 ? 1.036 : config.m64_blocks > 1 ? 1.04 : 1.0;
  if (config.n > 256) factor *= kThreeStages;
  if (config.promotes()) factor *= promotion_cost(config, problem);
  if (config.is_rs()) factor *= 1 + kTransposeShare;
  return factor;
}

// Has the kernel the constants kOther...?
bool has_other_clocks(const GemmConfig& config) {
  return (!config.shares_a() && !config.is_rs()) || config.input == DType::b1;
}

// The share of the tiles whose rows begin with a line. Tiles of an MN-major operand lie side by
// side in its rows.
double aligned_tiles(Major major, int tile_mn, std::int64_t mn, DType type) {
  if (major == Major::K || mn <= tile_mn) return 1.0;
  return double(std::gcd(tile_mn * bits(type) / 8, kL2Line)) / kL2Line;
}

// L2 lines that a row of a stage costs. s8 4096^3 in tiles of 128x256 with a pitch of 4112 bytes
// took 1.35 times as long without clusters, and 1.02 times in clusters of two, which share b.
double l2_lines_per_row(const CandidateOperand& input, DType type, double aligned_tiles) {
  const OperandLayout& layout = input.layout;
  const std::int64_t pitch = bytes_of(layout.pitch, type);
  const double of_tiles = aligned_tiles + (1 - aligned_tiles) * kMisalignedLines;
  if (input.repacked || begins_l2_lines(layout.alignment, pitch)) return of_tiles;
  const bool begins_sectors = layout.alignment % kL2Sector == 0 && pitch % kL2Sector == 0;
  return begins_sectors ? std::max(of_tiles, kSectorLines) : kMisalignedLines;
}

// The share of the lines of an operand that each of `ctas` CTAs costs, which share it.
double loaded_share(double lines_per_row, int ctas) {
  const double received = lines_per_row > 1 ? kReceived : 0.0;
  return received + (1 - received) / ctas;
}

// FLOP, scaled to f16's rate.
double scaled_flops(const GemmConfig& config, const Problem& problem) {
  const double gemms = config.terms() > 1 ? split_product_count(config.terms()) : 1;
  const double mma_share = config.is_sparse() ? 0.5 : 1.0;
  return gemms * mma_share * problem.flops() * bits(config.input) / 16;
}

// Clocks of the tensor cores for a k-block.
double math_clocks(const GemmConfig& config, const Problem& problem) {
  const double fma = kHopperFmaPerClock * 16 / bits(config.input);
  return issue_cost(config, problem) * config.tile_m() * config.tile_n() * config.tile_k() / fma;
}

// The fewest clocks of a k-block of narrow tiles.
double least_block(const GemmConfig& config) {
  if (config.n > 96 || config.terms() > 1 || config.is_sparse() || config.has_packed_weight())
    return 0;
  const double for_none = config.group_stages() > 1 ? kGroupedNarrowBlock : kNarrowBlock;
  return for_none + kNarrowColumn * config.n;
}

// Clocks a k-block: barrier, issue, and what is not hidden. Not of pingpong.
double block_overhead(const GemmConfig& config, bool grid_adds) {
  if (has_other_clocks(config)) return kOtherBlockOverhead;
  if (grid_adds) return kGridOverhead;
  if (config.group_stages() > 1) return kGroupedOverhead;
  const bool transposes_slowly = config.mainloop == Mainloop::rs && config.n <= 128;
  return kBlockOverhead + (transposes_slowly ? kNarrowTranspose : 0);
}

double fill_clocks(const GemmConfig& config) {
  return has_other_clocks(config) ? kOtherFill : kFill;
}

double launch_time(const GemmConfig& config) {
  return has_other_clocks(config) ? kOtherLaunch : kLaunch;
}

// Microseconds of `clocks` clocks in a product of so many FLOP. The constants of split FP32 were
// fitted to the clock of large problems.
double clocks_time(const GemmConfig& config, const Device& device, double flops, double clocks) {
  return clocks / (config.terms() > 1 ? device.hopper.clock : clock_rate(device, flops, clocks));
}

}  // namespace

Sm90Time::Sm90Time(const GemmConfig& config, const Problem& problem, const Device& device,
                   const CandidateOperands& operands)
    : config_(config),
      device_(device),
      blocks_(double(ceil_div(problem.k, config.tile_k()))),
      math_(math_clocks(config, problem)),
      flops_(scaled_flops(config, problem)) {
  const double aligned_a =
      aligned_tiles(major_a(config.layout), config.tile_m(), problem.m, config.input);
  const double aligned_b =
      aligned_tiles(major_b(config.layout), config.tile_n(), problem.n, config.input_b);
  // A single tile is loaded as far as it is inside of the matrix.
  rows_a_ = problem.m < config.tile_m() ? config.edge_rows_a(problem.m) : config.tile_m();
  rows_b_ = problem.n < config.tile_n() ? config.edge_rows_b(problem.n) : config.loaded_n();
  lines_a_ = l2_lines_per_row(operands.a, config.input, aligned_a);
  lines_b_ = l2_lines_per_row(operands.b, config.input_b, aligned_b);
}

bool Sm90Time::begins_sectors() const { return std::max(lines_a_, lines_b_) < kMisalignedLines; }

bool Sm90Time::shares_sectors(const LaunchConfig& launch) const {
  return launch.cluster.size() > 1 && config_.shares_a() && begins_sectors();
}

// Clocks in which a CTA loads a k-block from L2.
double Sm90Time::load_clocks(const LaunchConfig& launch) const {
  const ClusterShape cluster = launch.cluster;
  // A cluster that shares an operand saves lines where rows begin inside a sector. Elsewhere L2
  // bounds what it does not share: of slices, and b in 64x128 with 8-bit operands, if a is shared.
  const bool shares_slices = launch.slices > 1 && shares_sectors(launch);
  const bool is_wide_8bit = config_.warpgroups == 1 && config_.n >= 128 && bits(config_.input) == 8;
  const bool bounds_b = shares_slices || (shares_sectors(launch) && is_wide_8bit);
  const double unshared = launch.grid * device_.hopper.l2_bytes_per_clock / kUnsharedRate;
  const auto loaded_lines = [&](double lines, int ctas, bool bounds) {
    return std::max(lines * loaded_share(lines, ctas), bounds && ctas == 1 ? unshared : 0.0);
  };
  const double l2_lines_a = rows_a_ * loaded_lines(lines_a_, cluster.n, shares_slices);
  const double l2_lines_b = rows_b_ * loaded_lines(lines_b_, cluster.m, bounds_b);
  const double bytes =
      config_.terms() * (l2_lines_a * config_.row_bytes_a() + l2_lines_b * config_.row_bytes()) +
      config_.metadata_bytes();
  // CTAs of stream-K are at different k, so those that are alone ask L2 for lines of their own.
  const double alone = launch.stream_k && cluster.size() == 1 ? kStreamAlone : 1.0;
  return alone * bytes / device_.hopper.l2_bytes_per_clock;
}

// Clocks a k-block: barrier, issue, and what is not hidden. `depth`: k-blocks of a CTA.
double Sm90Time::overhead_clocks(const LaunchConfig& launch, double depth) const {
  if (!config_.pingpong) return block_overhead(config_, launch.grid_adds);
  if (has_other_clocks(config_)) return kOtherPingpongOverhead;
  const bool grows = bits(config_.input) == 16 && begins_sectors();
  return grows ? std::min(kPingpongOverhead, kPingpongDepth * depth) : kPingpongOverhead;
}

// Clocks of a k-block. `depth`: k-blocks of a CTA.
double Sm90Time::block_clocks(const LaunchConfig& launch, double depth) const {
  const ClusterShape cluster = launch.cluster;
  const bool shares_slices = launch.slices > 1 && shares_sectors(launch);
  const double waiting = (cluster.m > 1 ? kSharedB : 0) +
                         (cluster.size() >= 4 && !shares_slices ? kFourBlocks : 0) +
                         (config_.group_stages() > 1 && cluster.size() == 2 ? kGroupedPair : 0);
  const double issue = config_.warpgroups == 1 && config_.n == 256         ? kOneWide
                       : config_.has_packed_weight() && cluster.size() > 1 ? kPackedCluster
                       : config_.is_sparse() && cluster.size() == 1        ? kSparseAlone
                                                                           : 1.0;
  const double least = config_.has_packed_weight() ? packed_mma_block(config_, launch, device_) *
                                                         device_.hopper.clock * kFastClock
                                                   : least_block(config_);
  const double load = load_clocks(launch);
  const double clocks =
      std::max(issue * (std::max(math_, load) + overhead_clocks(launch, depth)), least);
  return clocks + waiting + kTraffic * load;
}

double Sm90Time::of(const Problem& stored, const LaunchConfig& launch) const {
  // With stream-K a cluster has whole tiles, and parts of two others.
  const double cluster_tiles =
      double(launch.tiles_m * launch.tiles_n) / (launch.grid / launch.launched_cluster().size());
  const double depth =
      launch.stream_k ? cluster_tiles * blocks_ : std::ceil(blocks_ / launch.slices);
  const double mainloop =
      depth * cluster_depth(config_, launch, device_) * block_clocks(launch, depth);
  // pingpong: one warpgroup multiplies while the other is outside of its mainloop. With one tile
  // for each of them, no mainloop waits for a store.
  const double area = double(config_.tile_m()) * config_.tile_n();
  const double outside = fill_clocks(config_) + area * store_clocks(config_, stored, launch);
  const double parts = launch.stream_k ? kStreamParts + std::floor(cluster_tiles) : 1.0;
  const double tile = !config_.pingpong   ? mainloop + parts * outside
                      : launch.waves <= 2 ? mainloop
                                          : std::max(mainloop, (mainloop + outside) / 2);
  const double waves = launch.stream_k ? 1.0 : wave_time(launch.waves, flops_);
  const bool is_plain_fp8 =
      is_fp8(config_.input) && !config_.is_sparse() && !config_.block_scaled();
  const bool takes_power =
      is_plain_fp8 && config_.warpgroups == 2 && config_.n <= 256 && !config_.pingpong;
  const double power = takes_power && flops_ >= kFp8PowerFlops ? kFp8Power : 1.0;
  const double clocks = power * waves * tile + (config_.pingpong ? outside : 0.0) +
                        cluster_sum_clocks(config_, launch);
  const bool starts_late = config_.warpgroups == 1 && std::max(lines_a_, lines_b_) == 1;
  const double cluster_start = starts_late ? kNarrowCluster : kCluster;
  const bool stores_columns = launch.slices > 1 && stored.has(Slot::packed_a);
  const double adds = launch.cluster_adds                 ? cluster_wait_time(config_, launch)
                      : stores_columns && config_.n <= 64 ? kNarrowColumns
                                                          : 0.0;
  const double start = launch_time(config_) + cluster_start * (launch.cluster.size() / 2) + adds;
  const double last_store = launch.epilogue_path == EpiloguePath::columns ? kColumnsStore : 0;
  return start + clocks_time(config_, device_, flops_, clocks) + last_store;
}

Sm90Bound::Sm90Bound(const GemmConfig& config, const Problem& problem, const Device& device)
    : config_(config), device_(device) {
  if (!config.uses_tma() || is_packed_wgmma(config) || config.is_tf32x2()) return;
  tiles_ = double(problem.batch) * double(ceil_div(problem.m, config.tile_m())) *
           double(ceil_div(problem.n, config.tile_n()));
  resident_ = double(device.multiprocessors) * config.least_ctas();
  blocks_ = double(ceil_div(problem.k, config.tile_k()));
  const double math = math_clocks(config, problem), least = least_block(config) + kFourBlocks;
  const auto block = [&](bool grid_adds) {
    const double overhead = config.pingpong ? 0 : block_overhead(config, grid_adds);
    return std::max(math + overhead + kFourBlocks, least);
  };
  block_ = block(false);
  grid_block_ = block(true);
  fill_ = config.pingpong ? 0 : fill_clocks(config);
  flops_ = scaled_flops(config, problem);
  start_ = launch_time(config);
}

double Sm90Bound::least(Division division, double bytes) const {
  if (blocks_ == 0) return 0;
  const int slices = division.slices;
  const bool another_adds = slices > 1 && !division.cluster_adds;
  LaunchConfig launch;
  launch.slices = slices;
  launch.cluster_adds = division.cluster_adds;
  launch.grid = int(std::min(resident_, tiles_ * slices));
  const double depth =
      division.stream_k ? tiles_ / resident_ * blocks_ : std::ceil(blocks_ / slices);
  const double block = another_adds || division.stream_k ? grid_block_ : block_;
  const double mainloop = depth * cluster_depth(config_, launch, device_) * block;
  const double tiles = tiles_ * (another_adds ? slices : 1);
  const double waves = division.stream_k ? 1.0 : wave_time(tiles / resident_, flops_);
  const double time = start_ + cluster_wait_time(config_, launch) +
                      clocks_time(config_, device_, flops_, waves * (mainloop + fill_));
  const double sums = another_adds ? kGridAdds + kAddSlice * slices : 0;
  return sums + least_with_memory(time, bytes, device_);
}

double cluster_sum_time(const GemmConfig& config, const LaunchConfig& launch,
                        const Device& device) {
  if (!launch.cluster_adds || launch.slices == 2) return 0;
  return cluster_wait_time(config, launch) +
         cluster_sum_clocks(config, launch) / (device.hopper.clock * kFastClock);
}

double add_slices_time(const GemmConfig& config, const Problem& problem, const Device& device,
                       const LaunchConfig& launch) {
  if (is_packed_wgmma(config)) return packed_sum_time(config, problem, launch);
  const int slices = launch.stored_slices();
  if (slices == 1) return 0;
  const double l2_rate =
      device.hopper.l2_bytes_per_clock * device.multiprocessors * device.hopper.clock;
  const double without_data = launch.grid_adds ? kGridAdds + kAddSlice * slices
                              : problem.has(Slot::packed_a)
                                  ? kAddColumns + kAddColumnsSlice * slices
                                  : kAddSlices + kAddSlice * slices;
  const double bytes = launch.stream_k ? double(stored_sums_bytes(config, problem, launch))
                                       : double(partial_sums_bytes(config, problem, slices));
  return without_data + bytes / (l2_rate * kAddSlicesRate);
}

}  // namespace tcgemm::plan
