// One way to compute a Problem, and its estimated time. sm80.cpp, sm90.cpp, fp64.cpp, gemv.cpp and
// thin.cpp fit kernels to a problem; select_kernel.cpp compares the candidates.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>

#include "catalog.h"
#include "core/cluster_shape.h"
#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"
#include "plan/operand.h"

namespace tcgemm::plan {

// An operand as a candidate's kernel reads it: from the caller's memory, or after a repack pass.
struct CandidateOperand {
  OperandLayout layout;
  bool needs_conversion = false;
  bool repacked = false;

  // Can a kernel whose operand has this major load it in 16-byte vectors?
  bool can_load(Major major) const {
    if (repacked) return major == Major::K;
    return !needs_conversion && (layout.any_major || layout.major == major);
  }
  bool tma_readable() const { return repacked || layout.tma_readable(); }
  bool cp_async_readable() const { return repacked || layout.cp_async_readable(); }
};

struct CandidateOperands {
  CandidateOperand a, b;

  bool can_load(Layout layout) const {
    return a.can_load(major_a(layout)) && b.can_load(major_b(layout));
  }
};

// How k is divided: into slices, whose sums the CTAs of a cluster add, or of the grid, or another
// kernel; or into equal parts of the k-blocks of all tiles (LaunchConfig::stream_k). Or the warps
// of a GEMV kernel divide k, in a cluster of gemv_cluster CTAs; it is 0 for other kernels. `thin`
// asks for a kernel of few columns and a short k, which adds in an order of its own.
struct Division {
  int slices = 1;
  bool cluster_adds = false;
  int gemv_cluster = 0;
  bool stream_k = false;
  bool thin = false;
};

// The clusters of kernels that load by TMA. The searched ones are tried for every product, and a
// name asks for any of them: "row@4", "row@2x4".
struct ClusterChoice {
  ClusterShape shape;
  bool searched;
};
inline constexpr ClusterChoice kClusters[] = {
    {{1, 1}, true}, {{2, 1}, true}, {{4, 1}, true}, {{8, 1}, false}, {{1, 2}, true},
    {{2, 2}, true}, {{4, 2}, true}, {{1, 4}, true}, {{2, 4}, true},  {{1, 8}, false},
};
static_assert(std::ranges::all_of(kClusters, [](const ClusterChoice& choice) {
  return choice.shape.size() <= kMostClusterCtas;
}));

// Each returns grid, cluster, tiles, waves and the estimated time of one kernel, without passes
// before it; nothing if the kernel cannot run the problem. fit_sm90 returns the store path
// and the epilogue path as well, because its time depends on them, and counts the bytes from
// memory, of which a cluster saves some. `cluster`: the one that a name asks for; else the one with
// the shortest time. `most`: it looks for times below that, in microseconds.
using AskedCluster = std::optional<ClusterShape>;
std::optional<LaunchConfig> fit_sm80(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster);
std::optional<LaunchConfig> fit_sm90(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster, Division division, double least_bytes,
                                     double most);
std::optional<LaunchConfig> fit_fp64(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster, Division division);
std::optional<LaunchConfig> fit_thin(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster);
std::optional<LaunchConfig> fit_gemv(const GemmConfig& config, const Problem& problem,
                                     const Device& device, const CandidateOperands& operands,
                                     AskedCluster cluster);

// Clusters of a kernel of sm_90a that run at one time.
std::int64_t resident_clusters(const GemmConfig& config, const Device& device, int cluster);

// Microseconds of the kernel that adds the sums of slices of k; 0 where there is none.
double add_slices_time(const GemmConfig& config, const Problem& problem, const Device& device,
                       const LaunchConfig& launch);
// Microseconds in which a cluster adds the sums of slices of k; 0 where none does. With two slices
// it is not measurable where memory bounds the product.
double cluster_sum_time(const GemmConfig& config, const LaunchConfig& launch, const Device& device);

// Height of the raster group of a persistent kernel, in clusters: the tiles that are in flight at
// one time form a square of the result, which needs the fewest bytes from L2.
inline int raster_group(const GemmConfig& config, const Device& device, ClusterShape cluster = {}) {
  const double rows = std::sqrt(double(device.multiprocessors) * config.tile_n() / config.tile_m());
  return std::max(1, int(std::lround(rows / cluster.m)));
}

// The bytes of the result, and of a matrix in memory, where a stride of 0 repeats elements.
inline double result_bytes(const Problem& problem) {
  return double(problem.batch) * problem.m * problem.n * bytes(problem[Slot::out].dtype);
}
inline double matrix_bytes(const Matrix& matrix, std::int64_t rows, std::int64_t cols,
                           std::int64_t batch) {
  const auto extent = [](std::int64_t stride, std::int64_t size) {
    return stride == 0 ? 1.0 : double(size);
  };
  return extent(matrix.stride_row, rows) * extent(matrix.stride_col, cols) *
         extent(matrix.stride_batch, batch) * bits(matrix.dtype) / 8;
}

// A row-major result of the problem, which is in no memory yet.
inline Matrix row_major_result(const Problem& problem, DType dtype) {
  return {0, dtype, problem.n, 1, problem.m * problem.n};
}

// Reserves `bytes` in a workspace whose end is `offset`, and returns where they start.
constexpr std::size_t carve_workspace(std::size_t& offset, std::size_t bytes) {
  const std::size_t start = offset;
  offset += aligned(bytes);
  return start;
}

}  // namespace tcgemm::plan
