// What a kernel gets: plain values, passed by value as one __grid_constant__ parameter.
//
// Rows, columns, depth and batch fit 32 bits; every linear index is 64 bits.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/problem.h"

namespace tcgemm {

// The largest of them: rounded up to whole tiles and clusters they still fit. ops/ checks it.
inline constexpr std::int64_t kLargestExtent = (std::int64_t(1) << 31) - 1024;

// A CUtensorMap without cuda.h, so that the host side of the planner does not need it.
struct alignas(64) TensorMap {
  std::uint64_t words[16];
};

// An operand of the epilogue; data == nullptr: absent. Strides in elements, 0 broadcasts.
struct TensorRef {
  const void* data = nullptr;
  std::int64_t stride_row = 0;
  std::int64_t stride_col = 0;
  std::int64_t stride_batch = 0;
  DType dtype = DType::f32;
  bool vector = false;         // neighbours of a row may be read together, up to 16 bytes
  bool vector_column = false;  // the same of a column
};

// What is added to the accumulator, in this order; the activation comes before the residual.
inline constexpr int kC = 0, kBias = 1, kResidual = 2;
inline constexpr int kSources = 3;

// Multipliers along one side of the result, or of blocks of an operand; data == nullptr: all 1.
// Index i of the side reads data[(i >> shift) * stride].
struct ScaleVector {
  const float* data = nullptr;
  std::int64_t stride = 0;    // along m (scale_a) or n (scale_b); 0: one value serves all
  std::int64_t stride_k = 0;  // along k, a value for 128 of it: block-scaled kernels alone
  std::int64_t stride_batch = 0;
  int shift = 0;
};

// acc - zero_a[m] * sum_b[n] - zero_b[n] * sum_a[m] + k * zero_a[m] * zero_b[n], modulo 2^32. Both
// or neither of a pair are there: sums are over k, of what the workspace's pass has read.
struct ZeroPoints {
  TensorRef zero_a, zero_b;  // s32; stride_row along m, stride_col along n
  TensorRef sum_a, sum_b;
  std::int32_t k = 0;
};

// See Problem: activation(alpha * scale_a * scale_b * accumulator + beta * c + bias) + residual,
// times scale_out, rounded once to `out`.
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
  float* amax = nullptr;  // starts at 0; never negative, so that its bits compare as integers
  ZeroPoints zeros;
  void* out = nullptr;
  std::int64_t out_stride_row = 0;
  std::int64_t out_stride_col = 0;
  std::int64_t out_stride_batch = 0;
  bool out_vector = false;  // neighbours of a row of `out` may be written together, up to 16 bytes
  bool out_vector_column = false;  // the same of a column
  bool has_terms =
      false;  // something besides alpha and scales comes between accumulator and rounding
  bool unrolled =
      false;            // nothing does but a bias, as finish_fast (tile/store.cuh) has it, and relu
  bool scaled = false;  // alpha, scale_a or scale_b multiply
  bool zero_points = false;
};

struct Extent {
  std::int32_t m, n, k, batch;
};

// How the scheduler walks the result: see tile/scheduler.cuh. tiles_m counts clusters.
struct Tiling {
  std::int32_t tiles_m, tiles_n, raster_group;
  std::int64_t total;  // tiles_m * tiles_n * batch
};

// Of kernels that multiply 16-bit parts of f32 operands: see core/split_fp32.h.
struct SplitFp32Params {
  const std::uint32_t* decision = nullptr;
  const std::uint32_t* ranges_a = nullptr;  // batch x m; without batch where a has none
  const std::uint32_t* ranges_b = nullptr;  // batch x n
  std::uint8_t* recompute_mask = nullptr;   // batch x flags_m x flags_n
  std::int32_t mask_m = 0, mask_n = 0;
  std::int32_t copies_a = 1, copies_b = 1;  // matrices of the batch: parts are that far apart
  std::int32_t top = 0;
  std::int32_t max_spread = 0;
  float error_threshold = 0;
};

// Of kernels whose a is sparse: MetadataTiles of it. There extent.k is that of b, and a in memory
// has its values.
struct SparseParams {
  const std::uint32_t* tiles = nullptr;
  std::int32_t blocks_m = 0;
};

struct TmaParams {
  TensorMap a;
  TensorMap b;
  TensorMap out;  // used by store_tma
  Epilogue epilogue;
  Extent extent;
  Tiling tiling;
  ScaleVector scale_a;  // of block-scaled kernels
  ScaleVector scale_b;
  SplitFp32Params split;
  SparseParams sparse;
  bool a_batched;  // false: one matrix serves every batch
  bool b_batched;
  TmaStore tma_store;
};

// What a verdict leaves to a kernel. Without a verdict: all tiles. With flags: the tiles of
// kRecomputeTile x kRecomputeTile whose flag others have set, and nothing unless the verdict is careful.
// Without them: all tiles where there are no f16 parts, and else nothing.
struct TileFilter {
  const std::uint32_t* decision = nullptr;
  const std::uint8_t* recompute_mask = nullptr;  // batch x tiles_m x tiles_n of the kernel's tiling
};

struct CpAsyncParams {
  TensorRef a;  // m x k
  TensorRef b;  // k x n
  Epilogue epilogue;
  Extent extent;
  Tiling tiling;
  bool a_vector;  // rows (K-major) or columns (MN-major) are read 16 bytes at a time
  bool b_vector;
  ScaleVector scale_a;  // of block-scaled kernels, whose epilogue has none
  ScaleVector scale_b;
  TileFilter filter;  // of f32 kernels
  SparseParams sparse;
};

// One copy of a prepare pass: any strides -> K-major with a 16-byte pitch, elements converted.
struct CopyParams {
  TensorRef source;  // rows x k; its dtype, and `to`, are of equal size or f32 and bf16
  void* copy;        // rows x k, K-major
  DType to;
  std::int64_t rows, k, batch, pitch;
};

// Up to two copies in one launch.
struct RepackParams {
  CopyParams copies[2];
  int count;
};

// How the first split pass cuts an operand (kernels/passes/split_fp32_shape.cuh), so that its blocks do
// not have to work it out.
struct SplitFp32Partition {
  int size = 0;  // threads of a row's team, or words across a strip of columns, as an exponent of 2
  int units = 0, statistics = 0, blocks = 0;
  int across = 0;  // strips of one matrix
  int lines = 0;   // of k, for each block of a cluster
  int rounds = 0;  // of what a block holds
};

// One f32 operand and what the split passes make of it: see core/split_fp32.h.
struct SplitFp32Operand {
  TensorRef source;  // rows x k of f32, any strides; read in words where it is `vector`
  bool mn_major;     // read, and split, along lines of k: then in words where it is `vector_column`
  std::uint32_t* ranges;      // batch x rows
  std::uint32_t* statistics;  // as many as the first pass makes: kernels::split_statistics_count
  void* terms;                // [part][batch][line][pitch], 16 bits
  std::int64_t rows, k, batch;
  std::int64_t pitch;     // elements between lines of a part: whole words
  std::int64_t distance;  // elements between parts
  SplitFp32Partition cut;
};

struct SplitFp32PassParams {
  SplitFp32Operand operands[2];
  int count;
  int cluster;  // blocks of the first pass that share a strip of columns
  // Of both operands of the product: one whose parts were made before is not among `operands`.
  // nullptr: there is no other operand yet.
  const std::uint32_t* statistics[2];
  int statistics_counts[2];
  bool bf16;  // decided already, without a look at the notes
  int top;    // of bf16 parts
  std::uint32_t* decision;
  std::uint8_t* recompute_mask;
  std::int64_t recompute_mask_bytes;
};

// Sums along k of 8-bit integers: sums[batch][row], of rows x k with any strides.
struct SumParams {
  TensorRef source;
  std::int32_t* sums;
  std::int64_t rows, k, batch;
};

// See core/quantize.h.
struct QuantizeParams {
  TensorRef x;   // rows x cols
  void* values;  // batch x rows x cols of `to`, contiguous
  float* scales;
  // For "tensor" alone: its largest finite |x|, as the bits of an f32. Starts at 0.
  std::uint32_t* amax;
  std::int64_t rows, cols, batch;
  DType to;
};

}  // namespace tcgemm
