// Quantization with one scale per 1 x 128 or 128 x 128 elements. With kGiven the scales are an
// argument, and amax a result.
//
//   1x128    16 threads (32 for f32) quantize four groups of a row, one vector of each per thread
//   128x128  one CTA quantizes a block and keeps it in registers between its amax and the division
#pragma once

#include <cstdint>

#include "kernels/passes/row.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

inline constexpr int kUnitColumns = 4 * kScaleBlock;  // four groups

// Returns the maximum of x[lane % 4] over kLanes lanes. In each of the first two steps a lane keeps
// half of its values and sends the other half to its partner, until it has one value.
template <int kLanes>
__device__ inline float lanes_max(const float (&x)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  const float low_half =
      larger(odd ? x[1] : x[0], __shfl_xor_sync(kAllLanes, odd ? x[0] : x[1], 1));
  const float high_half =
      larger(odd ? x[3] : x[2], __shfl_xor_sync(kAllLanes, odd ? x[2] : x[3], 1));
  float result = larger(high ? high_half : low_half,
                        __shfl_xor_sync(kAllLanes, high ? low_half : high_half, 2));
#pragma unroll
  for (int distance = 4; distance < kLanes; distance *= 2)
    result = larger(result, __shfl_xor_sync(kAllLanes, result, distance));
  return result;
}

// kThreadsPerRow threads quantize a unit, four groups of a row, with one vector of each group per
// thread. Lane i of four computes the scale of group i: a division costs as much as everything else
// that a lane does with a vector.
template <DType kType, bool kGiven>
__global__ void __launch_bounds__(kQuantizeThreads, 4)
    quantize_1x128(const __grid_constant__ QuantizeParams params) {
  constexpr int kThreadsPerRow = kScaleBlock / QuantizeRow<kType>::kElements;
  constexpr int kUnitsPerBlock = kQuantizeThreads / kThreadsPerRow;
  const int thread = threadIdx.x % kThreadsPerRow;
  const std::int64_t groups = ceil_div(params.cols, kScaleBlock);
  const std::int64_t units_per_row = ceil_div(params.cols, kUnitColumns);
  const std::int64_t units = params.rows * params.batch * units_per_row;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t first = std::int64_t(blockIdx.x) * kUnitsPerBlock; first < units;
       first += std::int64_t(gridDim.x) * kUnitsPerBlock) {
    // Threads without a unit repeat the last one: the shuffles need all lanes of the warp.
    const std::int64_t unit = min(first + threadIdx.x / kThreadsPerRow, units - 1);
    const std::int64_t index = quotient(unit, units_per_row);
    const int unit_of_row = static_cast<int>(unit - index * units_per_row);
    const QuantizeRow<kType> row(params, index, false);
    uint4 vectors[kRowsPerThread];
    row.template load<kThreadsPerRow>(unit_of_row * (kUnitColumns / row.kElements), thread,
                                      ptx::evict_first(), vectors);
    float amax[kRowsPerThread];
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      MaxAbs<kType, kGiven> max_abs;
      max_abs.add(vectors[i]);
      amax[i] = max_abs.value();
    }
    const int group = unit_of_row * kRowsPerThread;
    // Lanes i, i + 4, ... have the scale of group i; a row may have fewer groups than a unit.
    const std::int64_t group_of_lane =
        index * groups + min(std::int64_t(group + thread % kRowsPerThread), groups - 1);
    const float scale = group_scale<kGiven>(params, group_of_lane, lanes_max<kThreadsPerRow>(amax),
                                            thread < kRowsPerThread && group + thread < groups);
    const float inverse = passes::inverse(scale);
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const Divisor<kType, kGiven> divisor(__shfl_sync(kAllLanes, scale, i, kThreadsPerRow),
                                           __shfl_sync(kAllLanes, inverse, i, kThreadsPerRow),
                                           params.to);
      const int column = (group + i) * kScaleBlock + thread * row.kElements;
      const int present = min(row.cols - column, row.kElements);
      char* to = row.values + column;
      if (present <= 0) continue;
      const QuantizedVector<kType> quantized(vectors[i], divisor, params.to);
      if (present == row.kElements && reinterpret_cast<std::uintptr_t>(to) % row.kElements == 0)
        quantized.store(to);
      else
        quantized.store(to, 0, present);
    }
  }
}

template <DType kType, bool kGiven>
__global__ void __launch_bounds__(kQuantizeThreads, kType == DType::f32 ? 2 : 3)
    quantize_128x128(const __grid_constant__ QuantizeParams params) {
  __shared__ float shared[2][kQuantizeWarps];
  constexpr int kSize = bytes(kType), kElements = kVectorBytes / kSize;
  constexpr int kThreadsPerRow = kScaleBlock / kElements;
  constexpr int kRowsPerRound = kQuantizeThreads / kThreadsPerRow * kRowsPerThread;
  constexpr int kRounds = kScaleBlock / kRowsPerRound;
  const int thread = threadIdx.x % kThreadsPerRow;
  const int first_row = threadIdx.x / kThreadsPerRow * kRowsPerThread;
  const std::int64_t blocks_n = ceil_div(params.cols, kScaleBlock);
  const std::int64_t blocks_m = ceil_div(params.rows, kScaleBlock);
  int buffer = 0;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t group = blockIdx.x; group < params.batch * blocks_m * blocks_n;
       group += gridDim.x, buffer ^= 1) {
    const std::int64_t block_m = quotient(group, blocks_n), batch = quotient(block_m, blocks_m);
    const std::int64_t col = (group - block_m * blocks_n) * kScaleBlock;
    const std::int64_t row = (block_m - batch * blocks_m) * kScaleBlock;
    const TensorRef& x = params.x;
    const int rows = static_cast<int>(min(params.rows - row, std::int64_t(kScaleBlock)));
    VectorReader<kSize> reader;
    reader.stride_ld_row = kSize * x.stride_row;
    reader.stride_element = kSize * x.stride_col;
    reader.source = static_cast<const char*>(x.data) + kSize * batch * x.stride_batch +
                    row * reader.stride_ld_row + col * reader.stride_element;
    reader.ld_rows = rows;
    reader.begin = col == 0 ? 0 : -kVectorBytes;
    reader.end = static_cast<int>(min(params.cols - col, std::int64_t(2 * kScaleBlock))) * kSize;
    reader.examine(kScaleBlock, kScaleBlock * kSize);

    MaxAbs<kType, kGiven> max_abs;
    uint4 vectors[kRounds][kRowsPerThread];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      reader.read(i * kRowsPerRound + first_row, thread, ptx::evict_first(), vectors[i]);
#pragma unroll
      for (int j = 0; j < kRowsPerThread; ++j) max_abs.add(vectors[i][j]);
    }
    const float scale = group_scale<kGiven>(
        params, group, block_max(max_abs.value(), shared[buffer]), threadIdx.x == 0);
    const Divisor<kType, kGiven> divisor(scale, params.to);
    const int present =
        static_cast<int>(min(params.cols - col - thread * kElements, std::int64_t(kElements)));
    char* values = static_cast<char*>(params.values) +
                   (batch * params.rows + row + first_row) * params.cols + col + thread * kElements;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
#pragma unroll
      for (int j = 0; j < kRowsPerThread; ++j) {
        const int row_of_thread = i * kRowsPerRound + j;
        if (present <= 0 || first_row + row_of_thread >= rows) continue;
        const QuantizedVector<kType> converted(vectors[i][j], divisor, params.to);
        char* to = values + row_of_thread * params.cols;
        if (present == kElements && reinterpret_cast<std::uintptr_t>(to) % kElements == 0)
          converted.store(to);
        else
          converted.store(to, 0, present);
      }
    }
  }
}

}  // namespace tcgemm::passes
