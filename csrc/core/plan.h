// A Plan is the planner's decision for a Problem: the passes before the GEMM, the kernel of the
// catalog, its grid and the workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/cluster_shape.h"
#include "core/epilogue_path.h"
#include "core/gemm_config.h"
#include "core/integer.h"
#include "core/problem.h"
#include "core/split_fp32.h"

namespace tcgemm {

// Alignment of everything in a workspace, in bytes.
inline constexpr std::size_t kAlignment = 256;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A pass that copies an operand with any strides into a K-major matrix whose pitch is a multiple of
// 16 bytes.
struct RepackPass {
  Matrix source;  // rows x k; b is seen as n x k
  // dtype of the copy: the dtype of the source, or bf16 from f32, or s8 from s4 and u4
  DType to = DType::f32;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::int64_t pitch = 0;  // elements between rows of the copy
  std::int64_t spare = 0;  // rows after the last that kernels may read; they are not initialised
  std::size_t offset = 0;  // of the copy in the workspace, bytes
};

// The copy, rows x k, in a workspace at `address`. The GEMM reads it instead of the source.
inline Matrix repacked(const RepackPass& pass, std::uintptr_t address) {
  return {address + pass.offset, pass.to, pass.pitch, 1,
          pass.batch == 1 ? 0 : pass.rows * pass.pitch};
}

// A pass that sums an operand along k, into batch x rows of s32: factor * sum + addend. The zero
// points of the other operand need these sums, and operations of b1 need the number of ones.
struct SumPass {
  Matrix source;  // rows x k
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::size_t offset = 0;  // in the workspace, bytes
  std::int32_t factor = 1;
  std::int32_t addend = 0;
};

// A plan may take its kernel and its slices of k from tcgemm.tune. It takes the slices alone where
// the kernel does not compute this call, because they decide the bits.
enum class Tuned : std::uint8_t { nothing, slices, kernel };

enum class Bound : std::uint8_t { compute, memory, launch };

constexpr const char* name(Bound bound) {
  switch (bound) {
    case Bound::compute: return "compute";
    case Bound::memory: return "memory";
    case Bound::launch: return "launch";
  }
  return "";
}

// How a kernel writes its result. The planner chooses; explain prints it and launch/ passes it on.
// A tile at the edge of the result falls back to elements inside the kernel.
enum class StorePath : std::uint8_t {
  elements,      // one element at a time, any strides
  vectors,       // vectors of up to 16 bytes along rows
  column_pairs,  // pairs along columns, straight from registers (RowOrder::interleaved)
  tma_rows,      // TMA boxes of 16 rows
  tma_columns,   // TMA boxes of a column-major result, by the store warp
};

inline constexpr int kStorePaths = 5;

constexpr const char* name(StorePath path) {
  constexpr const char* names[kStorePaths] = {"elements", "vectors", "column_pairs", "tma_rows",
                                              "tma_columns"};
  return names[static_cast<int>(path)];
}

// A kernel of the catalog and how it is launched. A fit returns it by value: 64 bytes.
struct LaunchConfig {
  int config_index = -1;  // index in the catalog; -1: no launch
  // The CTAs that share operands by multicast. In a GEMV kernel cluster.m CTAs divide k.
  ClusterShape cluster;
  int grid = 0;          // CTAs; they are persistent on sm90a
  int raster_group = 8;  // rows of clusters (sm90a) or tiles (sm80) in a group of the rasterization
  int slices = 1;        // of k; with stream-K the most that a tile has
  std::int64_t tiles_m = 0;  // clusters along m, and along n
  std::int64_t tiles_n = 0;
  StorePath store_path = StorePath::elements;
  EpiloguePath epilogue_path = EpiloguePath::rolled;
  // Who adds the slices: the CTAs of a cluster, or all CTAs after a barrier; else another kernel.
  bool cluster_adds = false;
  bool grid_adds = false;
  // The clusters have equal parts of the k-blocks of stream_tiles() tiles (Slices in
  // core/params.h), and add them. There is one matrix.
  bool stream_k = false;
  bool result_fits_l2 = true;  // else TMA stores it so that L2 evicts it first
  bool vector_a = false;       // cp.async kernels only: the operand is read in vectors of 16 bytes
  bool vector_b = false;
  double waves = 0;         // tiles / multiprocessors
  double microseconds = 0;  // estimated, repack passes included

  // The tiles that stream-K divides. The others are whole numbers of waves.
  std::int64_t stream_tiles() const {
    return stream_k ? tiles_m * tiles_n % (grid / cluster.size()) : 0;
  }
  // Slices whose partial sums lie in the workspace.
  int stored_slices() const { return cluster_adds ? 1 : slices; }
  // CTAs that the hardware places together.
  ClusterShape launched_cluster() const { return cluster_adds ? ClusterShape{slices, 1} : cluster; }
};

// An f32 operand and the split FP32 workspace that the split passes fill with its terms. A
// prepared operand has the same layout in a buffer of its own:
//
//   decision | statistics | ranges | terms
//
// launch::prepare alone writes this decision. A GEMM has its own: SplitFp32Plan::decision.
struct SplitFp32Pass {
  Matrix source;          // rows x k, any strides
  bool mn_major = false;  // of source and terms
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::int64_t pitch = 0;  // leading dimension of a term, elements
  // Bytes from the start of the workspace to this layout. If the operand is prepared as f16 terms,
  // this is where the second pass writes bf16 terms.
  std::size_t offset = 0;
  Prepared prepared;

  // Extent of the dimension that is not contiguous.
  std::int64_t lines() const { return mn_major ? k : rows; }
  std::int64_t term_stride() const { return batch * lines() * pitch; }  // elements between terms
};

constexpr DType partial_sums_dtype(const Problem& problem) {
  if (problem.accumulator == DType::f64 || problem.input_a == DType::f32) return DType::f64;
  return problem.accumulator == DType::s32 ? DType::s32 : DType::f32;
}

// Do the sums of slices lie by columns? Kernels whose lanes hold pairs of a column store them so
// where the result lies by columns: the kernel that adds them reads and writes rows then. Those of
// packed weights always do. Zero points need sums of a and b, which must keep their places.
inline bool has_sums_by_columns(const GemmConfig& config, const Problem& problem) {
  return problem.has(Slot::packed_a) ||
         (config.interleaved_rows() && is_column_major(problem[Slot::out]) &&
          !problem.has_any(kZeroPoints));
}

// The partial sums of a product: batch x slices matrices of m x n, in a workspace.
inline Matrix partial_sums_matrix(const GemmConfig& config, const Problem& problem,
                                  std::uintptr_t address) {
  constexpr std::int64_t kColumns = 32;
  const bool by_columns = has_sums_by_columns(config, problem);
  const std::int64_t pitch = round_up(by_columns ? problem.m : problem.n, kColumns);
  const Matrix sums{address, partial_sums_dtype(problem), pitch, 1,
                    (by_columns ? problem.n : problem.m) * pitch};
  return by_columns ? transposed(sums) : sums;
}

inline std::size_t partial_sums_bytes(const GemmConfig& config, const Problem& problem,
                                      int slices) {
  const Matrix sums = partial_sums_matrix(config, problem, 0);
  return std::size_t(problem.batch) * slices * sums.stride_batch * bytes(sums.dtype);
}

// Byte offsets in the layout above, which has space for a number of terms.
struct SplitFp32Layout {
  std::size_t statistics, ranges, terms, bytes;
};

inline SplitFp32Layout split_fp32_layout(const SplitFp32Pass& pass, int terms) {
  SplitFp32Layout layout{};
  layout.statistics = kAlignment;
  layout.ranges = layout.statistics + aligned(kMaxSplitStatistics * sizeof(std::uint32_t));
  layout.terms = layout.ranges + aligned(std::size_t(pass.batch) * pass.rows * sizeof(Range));
  layout.bytes = layout.terms + aligned(std::size_t(terms) * pass.term_stride() * 2);
  return layout;
}

// The first term of an operand, rows x k, where the terms begin at `address`.
inline Matrix first_term(const SplitFp32Pass& pass, int terms, std::uintptr_t address) {
  const DType type = terms == kF16Terms ? DType::f16 : DType::bf16;
  const std::int64_t stride_batch = pass.lines() * pass.pitch;
  if (pass.mn_major) return {address, type, 1, pass.pitch, stride_batch};
  return {address, type, pass.pitch, 1, stride_batch};
}

// The problem of a kernel that multiplies terms: a and b come from first_term.
inline Problem with_terms(const Problem& problem, const Matrix& a, const Matrix& b, int terms) {
  Problem split = problem;
  split.terms = terms;
  split.set(Slot::a, a);
  split.set(Slot::b, transposed(b));
  split.input_a = split.input_b = a.dtype;
  return split;
}

// The kernel that computes the tiles of a mask again, from the f32 operands.
struct RecomputePlan {
  LaunchConfig kernel;
  std::size_t mask = 0;  // offset in the workspace
  std::size_t mask_bytes = 0;
};

struct SplitFp32Plan {
  SplitFp32Pass a, b;
  bool bf16 = false;  // the host has decided on bf16 terms
  // Runs where the decision has kUseBf16: the bf16x3 kernel or the FP64-accumulating one. There is
  // none where `bf16` is set.
  LaunchConfig alternative;
  RecomputePlan recompute;
  std::size_t decision = 0;  // offset in the workspace
};

// The launches beside the kernel.
struct Passes {
  std::optional<RepackPass> repack_a;
  std::optional<RepackPass> repack_b;
  std::optional<SumPass> sums_a;  // if there is a zero_b, or Problem::adds_ones
  std::optional<SumPass> sums_b;  // if there is a zero_a, or Problem::adds_ones
  std::optional<SplitFp32Plan> split;
  std::optional<RecomputePlan> recompute;  // after a kernel that makes TF32 terms
};

struct Estimate {
  double microseconds = 0;  // kernel and passes
  double bytes = 0;         // minimum traffic of device memory
  Bound bound = Bound::launch;
};

// The order of the launches:
//
//   Problem --make_plan--> Plan --launch--> [repack a, b] [sums of a] [sums of b] GEMM kernel
//
//   slices of k: [repack a, b] [sums] GEMM kernel -> partial sums  kernel that adds them
//   slices of k that a cluster adds: as without slices
//
//   split FP32 (core/split_fp32.h), on the same stream:
//     [repack a, b]  first split pass  second split pass  f16x2 kernel  bf16x3 kernel  recompute
//     [repack a, b]  tf32x2 kernel  recompute
struct Plan {
  LaunchConfig main;
  bool swap_ab = false;  // the kernel computes out^T = b^T a^T
  Tuned tuned = Tuned::nothing;
  Passes passes;
  std::size_t partial_sums = 0;  // of the slices of k: offset in the workspace
  std::size_t workspace = 0;     // bytes
  Estimate estimate;

  int stored_slices() const { return main.stored_slices(); }
  // Does the kernel store the argument of the activation beside the result, where both are wanted?
  bool stores_z() const {
    const bool has_one_kernel = !passes.split && !passes.recompute;
    return stored_slices() > 1 || (has_one_kernel && (main.epilogue_path == EpiloguePath::fused ||
                                                      main.epilogue_path == EpiloguePath::columns));
  }
};

}  // namespace tcgemm
