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
struct Source {
  const void* data = nullptr;
  std::int64_t stride_row = 0;
  std::int64_t stride_col = 0;
  std::int64_t stride_batch = 0;
  DType dtype = DType::f32;
  bool vector = false;  // neighbours of a row may be read together, up to 16 bytes
};

// What is added to the accumulator, in this order; the activation comes before the residual.
inline constexpr int kC = 0, kBias = 1, kResidual = 2;
inline constexpr int kSources = 3;

// activation(alpha * accumulator + beta * c + bias) + residual -> out, rounded once.
struct Epilogue {
  float alpha = 1;
  float beta = 1;
  Activation activation = Activation::none;
  DType out_dtype = DType::f32;
  Source sources[kSources];
  void* out = nullptr;
  std::int64_t out_stride_row = 0;
  std::int64_t out_stride_col = 0;
  std::int64_t out_stride_batch = 0;
  bool out_vector = false;  // neighbours of a row of `out` may be written together, up to 16 bytes
  bool options = false;  // something besides alpha comes between the accumulator and the rounding
  bool fast = false;     // nothing does but a bias that serves all rows, and relu
};

struct Extent {
  std::int32_t m, n, k, batch;
};

// How the scheduler walks the result: see tile/scheduler.cuh. tiles_m counts clusters.
struct Tiling {
  std::int32_t tiles_m, tiles_n, group;
  std::int64_t total;  // tiles_m * tiles_n * batch
};

struct Sm90Params {
  TensorMap a;
  TensorMap b;
  TensorMap out;  // used where store_tma
  Epilogue epilogue;
  Extent extent;
  Tiling tiling;
  bool a_batched;  // false: one matrix serves every batch
  bool b_batched;
  bool store_tma;
};

struct Sm80Params {
  Source a;  // m x k
  Source b;  // k x n
  Epilogue epilogue;
  Extent extent;
  Tiling tiling;
  bool a_vector;  // rows (K-major) or columns (MN-major) are read 16 bytes at a time
  bool b_vector;
};

struct PrepareParams {
  Source source;  // rows x k
  void* copy;     // rows x k, K-major
  std::int64_t rows, k, batch, pitch;
};

}  // namespace tcgemm
