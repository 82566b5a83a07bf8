// Which clusters and divisions of k the TMA + wgmma kernels of Hopper can run a problem with, and
// the fastest of them. sm90_time.cpp has the cost model.
#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/candidate.h"
#include "plan/memory.h"
#include "plan/packed.h"
#include "plan/slices.h"
#include "plan/sm90_time.h"
#include "plan/store_path.h"
#include "plan/store_time.h"
#include "plan/tf32x2.h"

namespace tcgemm::plan {
namespace {

constexpr double kKeptShare = 0.17;  // share of L2 in which b stays beside a larger result

// Can the CTAs of a cluster of the kernel share operands so? The last cluster may reach beyond the
// matrix, but not to rows or columns that do not fit 32 bits.
bool may_share(const GemmConfig& config, const Problem& problem, ClusterShape shape) {
  const auto fits = [](std::int64_t extent, std::int64_t size) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    return extent <= kMost - size || round_up(extent, size) <= kMost;
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

// Has the problem enough k-blocks for the division, and few enough tiles for clusters that add? The
// kernel has such a division: Search::try_rows.
bool may_divide(const GemmConfig& config, const Problem& problem, const Device& device,
                Division division) {
  if (division.slices == 1) return !division.cluster_adds;
  if (division.slices > ceil_div(problem.k, config.tile_k())) return false;
  if (!division.cluster_adds) return true;
  // Every cluster has one tile.
  const std::int64_t tiles =
      problem.batch * ceil_div(problem.m, config.tile_m()) * ceil_div(problem.n, config.tile_n());
  return tiles <= resident_clusters(config, device, division.slices);
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

std::int64_t resident_clusters(const GemmConfig& config, const Device& device, int cluster) {
  const int ctas = config.least_ctas();
  if (cluster <= 2) return device.multiprocessors * ctas / cluster;
  if (cluster == 3) return device.hopper.clusters_of_three * ctas;
  return device.hopper.clusters_of_four * ctas / (cluster <= 4 ? 1 : 2);
}

std::optional<LaunchConfig> fit_sm90(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster, Division division, double least_bytes,
                                     double most) {
  if (!operands.a.tma_readable() || !operands.b.tma_readable() || problem.k == 0)
    return std::nullopt;
  if (!operands.can_load(config.layout)) return std::nullopt;
  if (!may_divide(config, problem, device, division)) return std::nullopt;
  if (config.shared_bytes() > device.shared_bytes) return std::nullopt;
  const int slices = division.slices;
  const bool cluster_adds = division.cluster_adds;
  const bool another_adds = (slices > 1 && !cluster_adds) || division.stream_k;
  const bool stores_matrices = another_adds && !division.stream_k;
  std::optional<Problem> sums;
  if (stores_matrices)
    sums = partial_sums(problem, slices, partial_sums_matrix(config, problem, 0));
  const Problem& stored = sums ? *sums : problem;
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
  const Sm90Time time(config, problem, device, operands);
  LaunchConfig best;
  best.microseconds = most;
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
      launch.microseconds = time.of(stored, launch);
      if (launch.microseconds >= best.microseconds) continue;  // and memory only adds to it
      launch.microseconds = with_memory(launch, config, problem, least_bytes, device);
    }
    if (launch.microseconds < best.microseconds) best = launch;
  }
  if (best.grid == 0) return std::nullopt;  // no such cluster, or none below `most`
  // Another kernel reads the sums of slices at once.
  best.result_fits_l2 = another_adds || result_bytes(problem) <= double(device.l2_bytes);
  best.raster_group = visits_whole_rows(config, problem, device, best)
                          ? 1
                          : raster_group(config, device, best.cluster);
  return best;
}

}  // namespace tcgemm::plan
