// Quantising with a scale for each 1 x 128 or 128 x 128 elements.
//
//   1x128    16 lanes (32 for f32) a row of four groups, a chunk of each a lane
//   128x128  a block a group, in registers between its maximum and the division
#pragma once

#include <cstdint>

#include "kernels/passes/row.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

inline constexpr int kQuad = 4 * kScaleBlock;  // columns of four groups

// The largest of x[i], for i = lane % 4, of kLanes lanes: with each step lanes keep half of what
// they have and give the other half away, until one is left.
template <int kLanes>
__device__ inline float lanes_largest(const float (&x)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  const float low_half = fmaxf(odd ? x[1] : x[0], __shfl_xor_sync(kAllLanes, odd ? x[0] : x[1], 1));
  const float high_half =
      fmaxf(odd ? x[3] : x[2], __shfl_xor_sync(kAllLanes, odd ? x[2] : x[3], 1));
  float largest = fmaxf(high ? high_half : low_half,
                        __shfl_xor_sync(kAllLanes, high ? low_half : high_half, 2));
#pragma unroll
  for (int distance = 4; distance < kLanes; distance *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  return largest;
}

// Four groups of a row for each team of lanes, a chunk a lane. Lane i of four works out the scale
// of group i, for a division costs as much as all that a lane does with a chunk.
template <DType kType>
__global__ void __launch_bounds__(kQuantizeBlock, 4)
    quantize_1x128(const __grid_constant__ QuantizeParams params) {
  constexpr int kTeam = kScaleBlock / Row<kType>::kElements, kTeams = kQuantizeBlock / kTeam;
  const int thread = threadIdx.x % kTeam;
  const std::int64_t groups = ceil_div(params.cols, kScaleBlock);
  const std::int64_t across = ceil_div(params.cols, kQuad);
  const std::int64_t quads = params.rows * params.batch * across;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t first = std::int64_t(blockIdx.x) * kTeams; first < quads;
       first += std::int64_t(gridDim.x) * kTeams) {
    // Lanes without a quad repeat the last one: shuffles want all of a warp.
    const std::int64_t quad = min(first + threadIdx.x / kTeam, quads - 1);
    const std::int64_t index = quotient(quad, across);
    const int left = static_cast<int>(quad - index * across);
    const Row<kType> row(params, index, false);
    uint4 chunks[kThreadLines];
    row.template read<kTeam>(left * (kQuad / row.kElements), thread, ptx::evict_first(), chunks);
    float largest[kThreadLines];
#pragma unroll
    for (int i = 0; i < kThreadLines; ++i) {
      Largest<kType> largest_of_chunk;
      largest_of_chunk.add(chunks[i]);
      largest[i] = largest_of_chunk.value();
    }
    const float scale = scale_of(lanes_largest<kTeam>(largest), params.to);
    const float inverse = passes::inverse(scale);
    const int group = left * kThreadLines;
    if (thread < kThreadLines && group + thread < groups)
      params.scales[index * groups + group + thread] = scale;
#pragma unroll
    for (int i = 0; i < kThreadLines; ++i) {
      const Divisor<kType> divisor(__shfl_sync(kAllLanes, scale, i, kTeam),
                                   __shfl_sync(kAllLanes, inverse, i, kTeam));
      const int column = (group + i) * kScaleBlock + thread * row.kElements;
      const int exist = min(row.cols - column, row.kElements);
      char* to = row.values + column;
      if (exist <= 0) continue;
      const Values<kType> values(chunks[i], divisor, params.to);
      if (exist == row.kElements && reinterpret_cast<std::uintptr_t>(to) % row.kElements == 0)
        values.write(to);
      else
        values.write(to, 0, exist);
    }
  }
}

template <DType kType>
__global__ void __launch_bounds__(kQuantizeBlock, kType == DType::f32 ? 2 : 3)
    quantize_128x128(const __grid_constant__ QuantizeParams params) {
  __shared__ float shared[2][kWarps];
  constexpr int kSize = bytes(kType), kElements = kChunk / kSize;
  constexpr int kTeam = kScaleBlock / kElements;                 // threads a row
  constexpr int kLines = kQuantizeBlock / kTeam * kThreadLines;  // read at once
  constexpr int kRounds = kScaleBlock / kLines;
  const int thread = threadIdx.x % kTeam, mine = threadIdx.x / kTeam * kThreadLines;
  const std::int64_t across = ceil_div(params.cols, kScaleBlock);
  const std::int64_t down = ceil_div(params.rows, kScaleBlock);
  int turn = 0;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t group = blockIdx.x; group < params.batch * down * across;
       group += gridDim.x, turn ^= 1) {
    const std::int64_t above = quotient(group, across), batch = quotient(above, down);
    const std::int64_t col = (group - above * across) * kScaleBlock;
    const std::int64_t row = (above - batch * down) * kScaleBlock;
    const TensorRef& x = params.x;
    const int rows = static_cast<int>(min(params.rows - row, std::int64_t(kScaleBlock)));
    Lines<kSize> lines;
    lines.stride_line = kSize * x.stride_row;
    lines.stride_element = kSize * x.stride_col;
    lines.source = static_cast<const char*>(x.data) + kSize * batch * x.stride_batch +
                   row * lines.stride_line + col * lines.stride_element;
    lines.lines = rows;
    lines.begin = col == 0 ? 0 : -kChunk;
    lines.end = static_cast<int>(min(params.cols - col, std::int64_t(2 * kScaleBlock))) * kSize;
    lines.examine(kScaleBlock, kScaleBlock * kSize);

    Largest<kType> largest;
    uint4 held[kRounds][kThreadLines];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      lines.read(i * kLines + mine, thread, ptx::evict_first(), held[i]);
#pragma unroll
      for (int j = 0; j < kThreadLines; ++j) largest.add(held[i][j]);
    }
    const float scale = scale_of(block_largest(largest.value(), shared[turn]), params.to);
    if (threadIdx.x == 0) params.scales[group] = scale;
    const Divisor<kType> divisor(scale);
    const int exist =
        static_cast<int>(min(params.cols - col - thread * kElements, std::int64_t(kElements)));
    char* values = static_cast<char*>(params.values) +
                   (batch * params.rows + row + mine) * params.cols + col + thread * kElements;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadLines; ++j) {
        const int line = i * kLines + j;
        if (exist <= 0 || mine + line >= rows) continue;
        const Values<kType> converted(held[i][j], divisor, params.to);
        char* to = values + line * params.cols;
        if (exist == kElements && reinterpret_cast<std::uintptr_t>(to) % kElements == 0)
          converted.write(to);
        else
          converted.write(to, 0, exist);
      }
    }
  }
}

}  // namespace tcgemm::passes
