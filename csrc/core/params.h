// Parameter structs of the kernels. Each is passed by value as one __grid_constant__ parameter.
//
// Extents m, n, k and batch fit 32 bits; every linear index has 64 bits.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/integer.h"
#include "core/packed_weight.h"
#include "core/problem.h"

namespace tcgemm {

// The largest extent. Rounded up to whole tiles and clusters it still fits 32 bits. ops/ checks it.
inline constexpr std::int64_t kLargestExtent = (std::int64_t(1) << 31) - 1024;

// Same size and alignment as a CUtensorMap, so that the planner does not include cuda.h.
struct alignas(64) TensorMap {
  std::uint64_t words[16];
};

// Which of the lines that a kernel stores by TMA does L2 evict first? PTX's createpolicy with a
// fraction of 1 and CUTLASS (cute/arch/copy_sm90_desc.hpp) have the same values.
enum class L2Policy : std::uint64_t {
  evict_normal = 0x1000000000000000,
  evict_first = 0x12F0000000000000,
};

// A tensor that a kernel reads by pointer and strides. A null data pointer means: no operand.
// Strides are in elements; a stride of 0 broadcasts.
struct TensorRef {
  const void* data = nullptr;
  std::int64_t stride_row = 0;
  std::int64_t stride_col = 0;
  std::int64_t stride_batch = 0;
  DType dtype = DType::f32;
  bool row_vectors = false;     // rows allow vector loads of up to 16 bytes
  bool column_vectors = false;  // columns allow vector loads of up to 16 bytes
};

// The operands that the epilogue adds, in this order. The activation comes before the residual.
inline constexpr int kC = 0, kBias = 1, kResidual = 2;
inline constexpr int kSources = 3;

// Scales along m or n of the result, or of blocks of an operand. A null data pointer means 1.
// Index i along m or n reads data[(i >> shift) * stride].
struct ScaleVector {
  const float* data = nullptr;
  std::int64_t stride = 0;    // along m (scale_a) or n (scale_b); 0: one value for all
  std::int64_t stride_k = 0;  // along k, one value for 128 elements; block-scaled kernels only
  std::int64_t stride_batch = 0;
  int shift = 0;
};

// acc - zero_a[m] * sum_b[n] - zero_b[n] * sum_a[m] + k * zero_a[m] * zero_b[n], modulo 2^32.
// zero_a comes with sum_b, and zero_b with sum_a. The sums are over k; a SumPass (core/plan.h)
// writes them to the workspace.
struct ZeroPoints {
  TensorRef zero_a, zero_b;  // s32; stride_row along m, stride_col along n
  TensorRef sum_a, sum_b;
  std::int32_t k = 0;
};

// The epilogue of core/problem.h: activation(alpha * scale_a * scale_b * accumulator + beta * c +
// bias) + residual, times scale_out, rounded once to `out`.
struct Epilogue {
  float alpha = 1;
  float beta = 1;
  double alpha_f64 = 1;  // for f64 accumulators
  double beta_f64 = 1;
  std::int32_t alpha_s32 = 1;  // for s32 results
  std::int32_t beta_s32 = 1;
  Activation activation = Activation::none;
  DType out_dtype = DType::f32;
  TensorRef sources[kSources];
  ScaleVector scale_a, scale_b;
  const float* scale_out = nullptr;
  float* amax = nullptr;  // starts at 0; not negative, so its bits can be compared as integers
  ZeroPoints zeros;
  void* out = nullptr;
  std::int64_t out_stride_row = 0;
  std::int64_t out_stride_col = 0;
  std::int64_t out_stride_batch = 0;
  L2Policy store_policy = L2Policy::evict_normal;
  bool out_row_vectors = false;     // rows of `out` allow vector stores of up to 16 bytes
  bool out_column_vectors = false;  // columns of `out` allow vector stores of up to 16 bytes
  // There is more than alpha and scales between the accumulator and the rounding.
  bool has_terms = false;
  // One value for each column, which the plain and the fused epilogue read from shared memory in
  // f32: the bias, or without a bias the scales of b.
  TensorRef shared_vector;
  bool shares_scales = false;  // shared_vector has the scales of b
  bool scaled = false;         // alpha is not 1, or there is a scale_a or scale_b
  // EpiloguePath::columns: A and B are swapped, so alpha and the call's scale_a come first where
  // that is the kernel's scale_b.
  bool scales_columns_first = false;
  bool zero_points = false;
  // The argument of the activation, in out_dtype; nullptr: nobody needs it. Its rows are contiguous
  // vectors. With EpiloguePath::columns its columns are, and z_pitch is the stride between them.
  void* z = nullptr;
  std::int64_t z_pitch = 0;
  std::int64_t z_stride_batch = 0;
};

struct Extent {
  std::int32_t m, n, k, batch;
};

// The order in which the scheduler visits tiles (tile/scheduler.cuh). tiles_m and tiles_n count
// clusters.
struct Tiling {
  std::int64_t total;       // tiles_m * tiles_n * batch
  std::int32_t batch;       // matrices
  std::int32_t step_batch;  // the quotient and
  std::uint32_t step_rest;  // the rest of (clusters of the grid) / matrix
  Divisor matrix;           // tiles_m * tiles_n
  Divisor group;            // raster_group * tiles_n
  Divisor rows;             // raster_group
  Divisor last_rows;        // rows of the last group, which may have fewer
  std::int32_t last_first;  // the first row of the last group
};

// Parameters of kernels that multiply 16-bit terms of f32 operands: see core/split_fp32.h.
struct SplitFp32Params {
  const std::uint32_t* decision = nullptr;
  const std::uint32_t* ranges_a = nullptr;  // batch x m; m where one a serves every batch
  const std::uint32_t* ranges_b = nullptr;  // batch x n; n where one b serves every batch
  std::uint8_t* recompute_mask = nullptr;   // batch x mask_m x mask_n x kMaskBytes
  std::int32_t mask_m = 0, mask_n = 0;
  // Matrices in the batch of an operand. In the TMA map, term t of matrix i is matrix t * copies +
  // i.
  std::int32_t copies_a = 1, copies_b = 1;
  std::int32_t top = 0;
  std::int32_t max_spread = 0;
  float error_threshold = 0;
};

// Parameters of kernels whose a is 2:4 sparse. extent.k is the dense K, as in
// b; a in memory has the values, which are half as many.
struct SparseParams {
  const std::uint32_t* tiles = nullptr;  // metadata: see MetadataTiles in core/sparse.h
  std::int32_t blocks_m = 0;
};

// A packed weight, operand b of a GEMV kernel and a of the others: see core/packed_weight.h.
struct PackedParams {
  const float* table = nullptr;
  const char* codes = nullptr;
  const float* scales = nullptr;
  std::int32_t blocks_n = 0;  // of 128 rows
  std::int32_t blocks_k = 0;  // of 64
  std::int32_t groups = 0;
  std::int32_t vectors = 1;
  std::int32_t groups_in_block = 1;
  Divisor blocks_in_group;  // 1 if a block has several groups
  WeightFormat format = WeightFormat::none;
  WeightZeros zeros = WeightZeros::none;

  // The first group of a block of k.
  constexpr std::int32_t first_group(std::int32_t block) const {
    return blocks_in_group.quotient(block * groups_in_block);
  }
};

// What a kernel that adds slices of k in the grid does. It does both steps where the GPU runs all
// CTAs at one time. Else it is launched once for each.
enum class GridSteps : std::uint8_t { all, store, add };

// The slices of k whose sums a kernel computes by themselves. The first `longer` of them have one
// k-block more than the others. Unless a cluster adds them, matrix i of the result has slice
// i % count of matrix i / count.
struct Slices {
  std::int32_t count = 1;
  std::int32_t blocks = 0;
  std::int32_t longer = 0;
  Divisor divisor;  // count
  // The CTAs of a cluster have the slices of a tile, and add their sums. `batch` is then a matrix
  // of the operands.
  bool in_cluster = false;
  // Stream-K (Osama et al., PPoPP 2023): the k-blocks of the first `stream_tiles` tiles lie in a
  // line, and each cluster of the grid has one of `count` equal parts of it. A part is at most as
  // long as a tile. It may begin in one tile and end in the next one: those are slices of both
  // tiles. The other tiles are whole, and the clusters have as many of them each.
  bool stream_k = false;
  GridSteps steps = GridSteps::all;
  Divisor tile_blocks;  // the k-blocks of a tile
  std::int32_t stream_tiles = 0;

  // The matrix of the operands, and the slice, of matrix `batch` of the result.
  constexpr std::int32_t matrix(std::int32_t batch) const {
    return in_cluster ? batch : divisor.quotient(batch);
  }
  // `rank`: of the CTA in a cluster that adds slices.
  constexpr std::int32_t slice(std::int32_t batch, std::int32_t rank) const {
    return in_cluster ? rank : batch - matrix(batch) * count;
  }
  constexpr std::int32_t first(std::int32_t slice) const {
    return slice * blocks + (slice < longer ? slice : longer);
  }
  constexpr std::int32_t size(std::int32_t slice) const { return blocks + (slice < longer); }
  // With stream-K, the part that has this k-block of all tiles.
  constexpr std::int32_t part_of(std::int32_t block) const {
    const std::int32_t of_longer = longer * (blocks + 1);
    return block < of_longer ? block / (blocks + 1) : longer + (block - of_longer) / blocks;
  }
};

// The groups of a grouped product (Problem::grouped). Kernels divide rows or k: the host swaps A
// and B where the groups are columns.
struct GroupParams {
  const std::int32_t* offs = nullptr;
  std::int32_t stride = 1;  // between the ends of two groups, in words of 32 bits
  std::int32_t count = 0;
  std::int32_t rows = 0;     // clusters along m of a group of k
  std::int32_t columns = 0;  // clusters along n of a group
  std::int32_t raster = 1;   // rows of clusters that are visited together
  bool clears = true;        // write zeros where no group has an index
};

// Output path: no TMA, TMA boxes along rows, TMA boxes along columns.
enum class TmaStore : std::uint8_t { none, rows, columns };

// What a CTA reads first comes first, in as few lines of the constant cache as possible. TMA reads
// the maps itself.
struct TmaParams {
  Extent extent;
  Tiling tiling;
  std::int32_t edge_rows_a;  // GemmConfig::edge_rows_a
  std::int32_t edge_rows_b;
  bool a_batched;  // false: one matrix serves every batch
  bool b_batched;
  TmaStore tma_store;
  // The operand that the kernel before this one does not write. Its first loads do not wait for
  // that kernel.
  ConstantOperand constant;
  Slices slices;
  PackedParams packed;
  SparseParams sparse;
  ScaleVector scale_a;  // of block-scaled kernels
  ScaleVector scale_b;
  Epilogue epilogue;
  void* partial_sums;  // of slices that the grid adds
  SplitFp32Params split;
  TensorMap a;
  TensorMap b;
  // Of K-major operands: boxes of edge_rows_a, edge_rows_b. An operand whose first tile is its last
  // one has the map of the edge in `a` or `b`.
  TensorMap edge_a;
  TensorMap edge_b;
  TensorMap out;  // read where tma_store is not `none`
  GroupParams groups;
};

// Tile filter of the fallback kernels of split FP32 (core/split_fp32.h).
//   neither                all tiles
//   a mask                 the tiles of kRecomputeTile x kRecomputeTile that the mask selects
//   decision and a mask    the same, but none unless the decision has kNeedsChecks
//   decision without mask  all tiles if the decision has kUseBf16, else none
struct TileFilter {
  const std::uint32_t* decision = nullptr;
  // batch x tiles_m x tiles_n of the kernel's tiling: kMaskBytes, as one word
  const std::uint32_t* recompute_mask = nullptr;
};

struct CpAsyncParams {
  TensorRef a;  // m x k
  TensorRef b;  // k x n
  Epilogue epilogue;
  Extent extent;
  Tiling tiling;
  bool a_vector;  // rows (K-major) or columns (MN-major) are read in vectors of 16 bytes
  bool b_vector;
  ScaleVector scale_a;  // of block-scaled kernels; their epilogue has no scales
  ScaleVector scale_b;
  TileFilter filter;  // of f32 kernels
  SparseParams sparse;
  Slices slices;             // of kernels that accumulate in f64
  ConstantOperand constant;  // as in TmaParams; of GEMV kernels
  PackedParams packed;
  GroupParams groups;
};

// One copy of a repack pass. It reads any strides, writes a K-major matrix whose pitch is a
// multiple of 16 bytes, and converts elements. The strides, k and pitch of a sub-byte source
// count its bytes. Each of these becomes two elements of s8.
struct CopyParams {
  // rows x k; its dtype and `to` have equal sizes, or are f32 and bf16, or s4 or u4 and s8
  TensorRef source;
  void* copy;  // rows x k, K-major
  DType to;
  std::int64_t rows, k, batch, pitch;
};

// Up to two copies in one launch.
struct RepackParams {
  CopyParams copies[2];
  int count;
};

// How the first split pass partitions an operand among CTAs: see
// kernels/passes/split_fp32_shape.cuh. The host computes it, so that the CTAs need not.
struct SplitFp32Partition {
  // Base-2 logarithm: K-major, threads that share a row; MN-major, 16-byte vectors across a strip
  // of columns.
  int log_size = 0;
  int units = 0;        // K-major: groups of rows that a CTA reads at once; MN-major: strips
  int statistics = 0;   // statistics words that the pass writes
  int blocks = 0;       // CTAs
  int strips = 0;       // strips of one matrix
  int k_per_block = 0;  // indices of k that each CTA of a cluster reads
  int rounds = 0;       // times that a CTA fills its registers for a unit
};

// One f32 operand and the outputs of its split passes: see core/split_fp32.h.
struct SplitFp32Operand {
  TensorRef source;  // rows x k of f32, any strides; vector loads where `row_vectors` is set
  bool mn_major;     // read and split as an MN-major matrix; vector loads need `column_vectors`
  std::uint32_t* ranges;      // batch x rows
  std::uint32_t* statistics;  // kernels::split_statistics_count of them, from the first pass
  void* terms;                // [term][batch][row or k][pitch], 16-bit elements
  std::int64_t rows, k, batch;
  std::int64_t pitch;        // leading dimension of a term in elements, a multiple of 16 bytes
  std::int64_t term_stride;  // elements between terms
  SplitFp32Partition partition;
};

struct SplitFp32PassParams {
  SplitFp32Operand operands[2];
  int count;
  int cluster;  // CTAs of the first pass that share a strip of columns
  // Statistics of both operands of the GEMM. A prepared operand is not among `operands`. nullptr:
  // the other operand is not known yet, while one is prepared.
  const std::uint32_t* statistics[2];
  int statistics_counts[2];
  bool bf16;  // the host has decided on bf16 terms; statistics are not read
  int top;    // of bf16 terms: split_top in core/split_fp32.h
  std::uint32_t* decision;
  std::uint8_t* recompute_mask;
  std::int64_t recompute_mask_bytes;
};

// Adds partial sums: batch x slices x m x pitch of f32, s32 or f64 -> the result.
struct AddSlicesParams {
  const void* sums;
  std::int64_t pitch;  // elements, a multiple of 32
  std::int32_t slices;
  std::int32_t warps_per_block;  // 1, 2, 4 or 8
  Epilogue epilogue;
  Extent extent;
};

// Sums along k of integers: rows x k with any strides -> sums[batch][row]. The strides and k of a
// sub-byte source count bytes.
struct SumParams {
  TensorRef source;
  std::int32_t* sums;
  std::int64_t rows, k, batch;
  std::int32_t factor, addend;  // factor * sum + addend is written
};

// See core/quantize.h.
struct QuantizeParams {
  TensorRef x;   // rows x cols
  void* values;  // batch x rows x cols of `to`, contiguous
  float* scales;
  bool given;  // the scales are read, and amax is a result
  // The largest |x| of each group, as the bits of an f32; with given scales only finite elements
  // count. Without given scales only the granularity "tensor" has it. There it starts at 0.
  std::uint32_t* amax;
  std::int64_t rows, cols, batch;
  DType to;
};

// See core/activation_backward.h. `rows` counts the rows of all matrices.
struct ActivationBackwardParams {
  TensorRef g, z;
  void* gz;
  DType gz_dtype;
  bool gz_vectors;  // every row of gz starts at a multiple of 16 bytes
  void* sums;
  DType sum_dtype;
  float* partial_sums;  // splits x cols; nullptr if there is one split
  std::int64_t rows, cols;
  std::int64_t rows_per_matrix;
  // The partition: a CTA reads 2^log_lanes vectors of each row of one split.
  std::int64_t rows_per_split;
  int splits;
  int log_lanes;
};

}  // namespace tcgemm
