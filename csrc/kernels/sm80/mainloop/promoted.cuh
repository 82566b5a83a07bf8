// Promotion: adds the sums of each k-block to f32 accumulators.
//
// Tensor cores add FP8 products with fewer bits than f32 has; promotion keeps the error of a sum
// from growing with k. Block-scaled configs multiply the sums of a k-block by its scales at the
// same time. A k-block is as long as a block of scales.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "core/problem.h"

namespace tcgemm::sm80 {

// The scales of a lane along one dimension of the warp's tile: scales of kAdjacent rows (columns)
// from `first` on, and of every eighth one after that. A scale of 128 rows (columns) covers the
// whole tile of the warp.
template <int kCount, int kAdjacent>
struct LaneScales {
  const float* next;  // scale of the next k-block; nullptr: all scales are 1
  std::int64_t stride, stride_k;
  std::int64_t stride_8;  // to the scale eight rows (columns) further
  int remaining;          // rows (columns) from `first` to the end of the matrix
  float values[kCount][kAdjacent];

  __device__ void begin(const ScaleVector& source, int first, int extent, int batch) {
    next = source.data + batch * source.stride_batch + (first >> source.shift) * source.stride;
    stride = source.shift == 0 ? source.stride : 0;
    stride_k = source.stride_k;
    stride_8 = 8 * stride;
    remaining = extent - first;
  }

  __device__ void read() {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
#pragma unroll
      for (int j = 0; j < kAdjacent; ++j)
        values[i][j] = next != nullptr && 8 * i + j < remaining
                           ? __ldg(next + i * stride_8 + j * stride)
                           : 1.0f;
    next += stride_k;
  }
};

template <GemmConfig kConfig, int kWarpM, int kWarpN>
struct Promotion {
  static_assert(!kConfig.promotes() || kConfig.accumulator == DType::f32);
  static_assert(!kConfig.block_scaled() || kConfig.tile_k() == kScaleBlock);
  static_assert(kWarpM <= kScaleBlock && kScaleBlock % kWarpM == 0);
  static_assert(kWarpN <= kScaleBlock && kScaleBlock % kWarpN == 0);
  static constexpr int kRows = kWarpM / 8, kColumns = kWarpN / 8;

  LaneScales<kRows, 1> rows;
  LaneScales<kColumns, 2> columns;

  // For the warp's tile of matrix `batch`, which begins at (row, col).
  __device__ Promotion(const CpAsyncParams& params, int row, int col, int batch) {
    if constexpr (kConfig.block_scaled()) {
      const int lane = threadIdx.x % 32;
      rows.begin(params.scale_a, row + lane / 4, params.extent.m, batch);
      columns.begin(params.scale_b, col + lane % 4 * 2, params.extent.n, batch);
    }
  }

  // Called before the mma of a k-block: the loads of its scales overlap the mma.
  template <class Accumulators>
  __device__ void begin(Accumulators& sums) {
    if constexpr (kConfig.promotes()) {
#pragma unroll
      for (auto& fragment : sums)
#pragma unroll
        for (auto& sum : fragment) sum = 0;
    }
    if constexpr (kConfig.block_scaled()) {
      rows.read();
      columns.read();
    }
  }

  // Called after the mma of a k-block. tile/fragment.cuh has the order of the registers.
  template <class Accumulators>
  __device__ void end(const Accumulators& sums, Accumulators& accumulators) const {
    if constexpr (kConfig.promotes()) {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const int at = 4 * j + 2 * (i % 2) + c;
            const float sum = sums[i / 2][at];
            if constexpr (kConfig.block_scaled())
              accumulators[i / 2][at] += rows.values[i][0] * columns.values[j][c] * sum;
            else
              accumulators[i / 2][at] += sum;
          }
    }
  }
};

}  // namespace tcgemm::sm80
