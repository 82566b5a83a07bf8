// Cost model of the TMA + wgmma kernels on Hopper. docs/dev/kernels/cost-models.md says how its
// constants were fitted, and how good it is.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "plan/candidate.h"
#include "plan/memory.h"
#include "plan/packed.h"
#include "plan/slices.h"
#include "plan/store_path.h"
#include "plan/store_time.h"
#include "plan/tf32x2.h"

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
// Added to a k-block of the RS mainloop with tf32 in tiles of up to 128 columns: their products are
// too short to hide the transpose.
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
constexpr double kKeptShare = 0.17;    // share of L2 in which b stays beside a larger result
constexpr double kAddSlices = 3.0;     // microseconds: the kernel that adds slices, without data
constexpr double kAddSlice = 0.045;    // microseconds for each slice
constexpr double kGridAdds = 2.6;      // kAddSlices where the grid adds
constexpr double kStreamParts = 1.5;   // times that a CTA fills and stores with stream-K
constexpr double kStreamAlone = 1.3;   // factor of the loads of stream-K without clusters
constexpr double kAddColumns = 3.35;   // the same two with a packed weight
constexpr double kAddColumnsSlice = 0.21;
constexpr double kNarrowColumns = 0.8;   // added if tiles of up to 64 columns store them
constexpr double kAddSlicesRate = 0.18;  // share of L2's rate at which it reads
constexpr double kClusterAdds = 0.25;    // microseconds: the barriers of a cluster that adds slices
constexpr double kClusterAddsSlice = 0.3;    // for each slice after the second
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
  if (!config.has_packed_weight()) return kClusterAdds + kClusterAddsSlice * (launch.slices - 2);
  return launch.slices * (config.n == 32 ? 0.35 : 0.25);
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

double kernel_time(const GemmConfig& config, const Problem& problem, const Device& device,
                   const CandidateOperands& operands, const LaunchConfig& launch) {
  const std::int64_t blocks = ceil_div(problem.k, config.tile_k());
  // With stream-K a cluster has whole tiles, and parts of two others.
  const double cluster_tiles =
      double(launch.tiles_m * launch.tiles_n) / (launch.grid / launch.launched_cluster().size());
  const double depth =
      launch.stream_k ? cluster_tiles * double(blocks) : double(ceil_div(blocks, launch.slices));
  const double area = double(config.tile_m()) * config.tile_n();
  const double fma = kHopperFmaPerClock * 16 / bits(config.input);
  const double math = issue_cost(config, problem) * area * config.tile_k() / fma;
  const double aligned_a =
      aligned_tiles(major_a(config.layout), config.tile_m(), problem.m, config.input);
  const double aligned_b =
      aligned_tiles(major_b(config.layout), config.tile_n(), problem.n, config.input_b);
  // A single tile is loaded as far as it is inside of the matrix.
  const int rows_a = problem.m < config.tile_m() ? config.edge_rows_a(problem.m) : config.tile_m();
  const int rows_b =
      problem.n < config.tile_n() ? config.edge_rows_b(problem.n) : config.loaded_n();
  const double lines_a = l2_lines_per_row(operands.a, config.input, aligned_a);
  const double lines_b = l2_lines_per_row(operands.b, config.input_b, aligned_b);
  const ClusterShape cluster = launch.cluster;
  // A cluster that shares an operand saves lines where rows begin inside a sector. Elsewhere L2
  // bounds what it does not share: of slices, and b in 64x128 with 8-bit operands, if a is shared.
  const bool begins_sectors = std::max(lines_a, lines_b) < kMisalignedLines;
  const bool shares_sectors = cluster.size() > 1 && config.shares_a() && begins_sectors;
  const bool shares_slices = launch.slices > 1 && shares_sectors;
  const bool is_wide_8bit = config.warpgroups == 1 && config.n >= 128 && bits(config.input) == 8;
  const bool bounds_b = shares_slices || (shares_sectors && is_wide_8bit);
  const double unshared = launch.grid * device.hopper.l2_bytes_per_clock / kUnsharedRate;
  const auto loaded_lines = [&](double lines, int ctas, bool bounds) {
    return std::max(lines * loaded_share(lines, ctas), bounds && ctas == 1 ? unshared : 0.0);
  };
  const double l2_lines_a = rows_a * loaded_lines(lines_a, cluster.n, shares_slices);
  const double l2_lines_b = rows_b * loaded_lines(lines_b, cluster.m, bounds_b);
  const double bytes_in =
      config.terms() * (l2_lines_a * config.row_bytes_a() + l2_lines_b * config.row_bytes()) +
      config.metadata_bytes();
  // CTAs of stream-K are at different k, so those that are alone ask L2 for lines of their own.
  const double alone = launch.stream_k && cluster.size() == 1 ? kStreamAlone : 1.0;
  const double load = alone * bytes_in / device.hopper.l2_bytes_per_clock;
  const double store = area * store_clocks(config, problem, launch);
  const bool is_other = has_other_clocks(config), is_grouped = config.group_stages() > 1;
  const double pingpong_overhead = is_other ? kOtherPingpongOverhead
                                   : bits(config.input) == 16 && begins_sectors
                                       ? std::min(kPingpongOverhead, kPingpongDepth * depth)
                                       : kPingpongOverhead;
  const bool transposes_slowly = config.is_rs() && bits(config.input) == 32 && config.n <= 128;
  const double overhead = config.pingpong     ? pingpong_overhead
                          : is_other          ? kOtherBlockOverhead
                          : launch.grid_adds  ? kGridOverhead
                          : is_grouped        ? kGroupedOverhead
                          : transposes_slowly ? kBlockOverhead + kNarrowTranspose
                                              : kBlockOverhead;
  const double waiting = (cluster.m > 1 ? kSharedB : 0) +
                         (cluster.size() >= 4 && !shares_slices ? kFourBlocks : 0) +
                         (is_grouped && cluster.size() == 2 ? kGroupedPair : 0);
  const double issue = config.warpgroups == 1 && config.n == 256          ? kOneWide
                       : config.has_packed_weight() && cluster.size() > 1 ? kPackedCluster
                       : config.is_sparse() && cluster.size() == 1        ? kSparseAlone
                                                                          : 1.0;
  const bool is_narrow = config.n <= 96 && config.terms() == 1 && !config.is_sparse();
  const double least =
      config.has_packed_weight()
          ? packed_mma_block(config, launch, device) * device.hopper.clock * kFastClock
      : is_narrow ? (is_grouped ? kGroupedNarrowBlock : kNarrowBlock) + kNarrowColumn * config.n
                  : 0.0;
  const double k_block = std::max(issue * (std::max(math, load) + overhead), least);
  const double slower = cluster_depth(config, launch, device);
  const double mainloop = depth * slower * (k_block + waiting + kTraffic * load);
  // pingpong: one warpgroup multiplies while the other is outside of its mainloop. With one tile
  // for each of them, no mainloop waits for a store.
  const double outside = (is_other ? kOtherFill : kFill) + store;
  const double parts = launch.stream_k ? kStreamParts + std::floor(cluster_tiles) : 1.0;
  const double tile = !config.pingpong    ? mainloop + parts * outside
                      : launch.waves <= 2 ? mainloop
                                          : std::max(mainloop, (mainloop + outside) / 2);
  // The problem of partial sums has a matrix for each slice.
  const double matrices = launch.stream_k ? 1 : launch.stored_slices();
  const double gemms = config.terms() > 1 ? split_product_count(config.terms()) : 1;
  const double mma_share = config.is_sparse() ? 0.5 : 1.0;
  const double flops = gemms * mma_share * problem.flops() / matrices * bits(config.input) / 16;
  const double waves = launch.stream_k ? 1.0 : wave_time(launch.waves, flops);
  const bool is_plain_fp8 = is_fp8(config.input) && !config.is_sparse() && !config.block_scaled();
  const bool takes_power =
      is_plain_fp8 && config.warpgroups == 2 && config.n <= 256 && !config.pingpong;
  const double power = takes_power && flops >= kFp8PowerFlops ? kFp8Power : 1.0;
  const double clocks =
      power * waves * tile + (config.pingpong ? outside : 0.0) + cluster_sum_clocks(config, launch);
  const bool starts_late = config.warpgroups == 1 && std::max(lines_a, lines_b) == 1;
  const double cluster_start = starts_late ? kNarrowCluster : kCluster;
  const bool stores_columns = launch.slices > 1 && problem.has(Slot::packed_a);
  const double adds = launch.cluster_adds                ? cluster_wait_time(config, launch)
                      : stores_columns && config.n <= 64 ? kNarrowColumns
                                                         : 0.0;
  const double start =
      (is_other ? kOtherLaunch : kLaunch) + cluster_start * (cluster.size() / 2) + adds;
  // The constants of split FP32 were fitted to the clock of large problems.
  const double rate = config.terms() > 1 ? device.hopper.clock : clock_rate(device, flops, clocks);
  const double last_store = launch.epilogue_path == EpiloguePath::columns ? kColumnsStore : 0;
  return start + clocks / rate + last_store;
}

// Can the CTAs of a cluster of the kernel share operands so? The last cluster may reach beyond the
// matrix, but not to rows or columns that do not fit 32 bits.
bool may_share(const GemmConfig& config, const Problem& problem, ClusterShape shape) {
  const auto fits = [](std::int64_t extent, std::int64_t size) {
    return round_up(extent, size) <= std::numeric_limits<std::int32_t>::max();
  };
  if (!config.shares_a() && (shape.n > 1 || shape.m > 4)) return false;
  return fits(problem.m, shape.m * config.tile_m()) && fits(problem.n, shape.n * config.tile_n());
}

// Is the cluster tried where no name asks for it? Clusters of four took 1.4 times as long with 2:4
// operands (docs/dev/kernels/sm90-sparse.md), and no load bounds the wgmma of a packed weight.
bool is_searched(const GemmConfig& config, const ClusterChoice& choice, std::int64_t rows,
                 std::int64_t columns) {
  const int most = is_packed_wgmma(config) ? 1 : config.is_sparse() ? 2 : 8;
  const std::int64_t largest = std::min<std::int64_t>(rows, most);
  return choice.searched && choice.shape.m <= largest && choice.shape.n <= columns;
}

// Clusters that run at one time.
std::int64_t resident_clusters(const GemmConfig& config, const Device& device, int cluster) {
  const int ctas = config.least_ctas();
  if (cluster <= 2) return device.multiprocessors * ctas / cluster;
  if (cluster == 3) return device.hopper.clusters_of_three * ctas;
  return device.hopper.clusters_of_four * ctas / (cluster <= 4 ? 1 : 2);
}

// Can the kernel divide k so?
bool may_divide(const GemmConfig& config, const Problem& problem, const Device& device,
                Division division) {
  if (division.slices == 1) return !division.cluster_adds;
  if (division.slices > ceil_div(problem.k, config.tile_k())) return false;
  if (!division.cluster_adds) return config.divides_k();
  // Every cluster has one tile.
  const std::int64_t tiles =
      problem.batch * ceil_div(problem.m, config.tile_m()) * ceil_div(problem.n, config.tile_n());
  return config.adds_in_cluster(division.slices) &&
         tiles <= resident_clusters(config, device, division.slices);
}

// Sets up stream-K for clusters that run at one time. Returns false for batches, if tiles have many
// slices or none, and if several tiles read a large operand: they are at different k at one time,
// so that memory would deliver it several times (bf16 256x8192x16384 took 168 us with two columns
// of tiles of 128x128, and 126 in clusters along n, on an H200). A packed weight has few bytes.
// With one, stream-K is also for more tiles than clusters.
bool divide_stream(const GemmConfig& config, const Problem& problem, const Device& device,
                   std::int64_t resident, LaunchConfig& launch) {
  const std::int64_t blocks = ceil_div(problem.k, config.tile_k());
  const std::int64_t tiles = launch.tiles_m * launch.tiles_n;
  const std::int64_t clusters = std::min(resident, tiles * blocks);
  const bool has_whole_tiles = tiles >= clusters, is_packed = config.has_packed_weight();
  if (problem.batch > 1 || tiles % clusters == 0 || tiles * blocks >= Divisor::kLimit) return false;
  if (has_whole_tiles && !is_packed) return false;
  const auto stays_in_l2 = [&](std::int64_t rows) {
    return is_packed || rows * problem.k * bits(config.input) / 8 <= device.l2_bytes / 2;
  };
  if (launch.tiles_n > 1 && !stays_in_l2(problem.m)) return false;
  if (launch.tiles_m > 1 && !stays_in_l2(problem.n)) return false;
  launch.stream_k = launch.grid_adds = true;
  launch.grid = int(clusters) * launch.cluster.size();
  const std::int64_t shortest = launch.stream_tiles() * blocks / clusters;
  if (shortest == 0) return false;
  // The shortest part decides it. The first slice of a tile may be the end of a part.
  launch.slices = int(ceil_div(blocks - 1, shortest)) + 1;
  return launch.slices <= kSlicesOfWarp;  // more are added in groups, but not by one CTA
}

// Are tiles visited a row of clusters at a time? So memory gets whole rows of a result that L2 does
// not hold. Each row of tiles reads all of b, which must stay in L2. Batches and 2:4 operands were
// not measured.
bool visits_whole_rows(const GemmConfig& config, const Problem& problem, const Device& device,
                       const LaunchConfig& launch) {
  const double bytes_b = matrix_bytes(problem[Slot::b], problem.k, problem.n, problem.batch);
  return problem.batch == 1 && !config.is_sparse() && !launch.result_fits_l2 &&
         bytes_b <= kKeptShare * double(device.l2_bytes);
}

}  // namespace

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

std::optional<LaunchConfig> fit_sm90(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster, Division division, double least_bytes) {
  if (!operands.a.tma_readable() || !operands.b.tma_readable() || problem.k == 0)
    return std::nullopt;
  if (!operands.can_load(config.layout)) return std::nullopt;
  if (config.shared_bytes() > device.shared_bytes) return std::nullopt;
  if (!may_divide(config, problem, device, division)) return std::nullopt;
  const int slices = division.slices;
  const bool cluster_adds = division.cluster_adds;
  const bool another_adds = (slices > 1 && !cluster_adds) || division.stream_k;
  const bool stores_matrices = another_adds && !division.stream_k;
  const Problem stored =
      stores_matrices ? partial_sums(problem, slices, partial_sums_matrix(config, problem, 0))
                      : problem;
  // A warp that stores columns by TMA does not take part in the barriers of a cluster that adds.
  const StorePath whole = store_path(config, stored);
  const StorePath store = !cluster_adds || whole != StorePath::tma_columns ? whole
                          : config.interleaved_rows()                      ? StorePath::column_pairs
                                                                           : StorePath::elements;
  const EpiloguePath epilogue = epilogue_path(config, stored, store);
  const bool adds_in_memory = config.has_kernel(EpiloguePath::slices);
  const bool has_other_kernel = division.stream_k && adds_in_memory;
  if (!has_other_kernel && !config.has_kernel(kernel_path(epilogue))) return std::nullopt;

  const std::int64_t rows = ceil_div(problem.m, config.tile_m());
  const std::int64_t columns = ceil_div(problem.n, config.tile_n());
  LaunchConfig best;
  best.microseconds = HUGE_VAL;
  for (const ClusterChoice& choice : kClusters) {
    const ClusterShape shape = choice.shape;
    if (cluster ? shape != *cluster : !is_searched(config, choice, rows, columns)) continue;
    if (!may_share(config, problem, shape) || (cluster_adds && shape.size() > 1)) continue;
    LaunchConfig launch;
    launch.cluster = shape;
    launch.slices = slices;
    launch.cluster_adds = cluster_adds;
    launch.store_path = store;
    launch.epilogue_path = epilogue;
    launch.tiles_m = ceil_div(rows, shape.m);
    launch.tiles_n = ceil_div(columns, shape.n);
    const double clusters = double(launch.tiles_m) * double(launch.tiles_n) * double(stored.batch);
    const int ctas = launch.launched_cluster().size();
    const std::int64_t resident = resident_clusters(config, device, ctas);
    launch.waves = clusters / double(resident);
    launch.grid = int(std::min(clusters, double(resident))) * ctas;
    launch.grid_adds = another_adds && launch.waves <= 1 && adds_in_memory;
    if (division.stream_k && !divide_stream(config, problem, device, resident, launch)) continue;
    if (launch.grid_adds && adds_in_memory && epilogue != EpiloguePath::columns) {
      launch.epilogue_path = EpiloguePath::slices;
      launch.store_path = store_path_of_sums(problem);
    }
    if (is_packed_wgmma(config)) {
      const double area = double(config.tile_m()) * config.tile_n();
      const double store = area * store_clocks(config, stored, launch);
      launch.microseconds = packed_time(config, stored, device, launch, store, least_bytes);
    } else if (config.is_tf32x2()) {
      launch.microseconds = tf32x2_time(config, problem, device, launch, least_bytes);
    } else {
      launch.microseconds = kernel_time(config, stored, device, operands, launch);
      launch.microseconds = with_memory(launch, config, problem, least_bytes, device);
    }
    if (launch.microseconds < best.microseconds) best = launch;
  }
  if (best.grid == 0) return std::nullopt;  // no such cluster
  // Another kernel reads the sums of slices at once.
  best.result_fits_l2 = another_adds || result_bytes(problem) <= double(device.l2_bytes);
  best.raster_group = visits_whole_rows(config, problem, device, best)
                          ? 1
                          : raster_group(config, device, best.cluster);
  return best;
}

}  // namespace tcgemm::plan
