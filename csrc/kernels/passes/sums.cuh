// Sums along k of 8-bit integers, modulo 2^32: what zero points of the other operand are times.
//
//   k lies side by side : a warp a row, 16 bytes a lane, four sums an instruction
//   rows do             : a block 32 rows; threads read 16 rows of four lines of k each, turn them
//                         (turn.cuh) so that the same instruction sums them, and meet at the end
//
// Any other strides take the way of those that they are closer to, an element a load.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/passes/line.cuh"
#include "kernels/passes/transpose.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

inline constexpr int kSumBlock = 256;             // threads
inline constexpr int kSumWarps = kSumBlock / 32;  // rows of a block, where k is contiguous
inline constexpr int kSumRows = 2 * kChunk;       // rows of a block elsewhere
inline constexpr int kSumGroups = kSumBlock / 2;  // of four lines that it reads at once

constexpr bool sums_along_rows(const SumParams& params) {
  return params.source.stride_col != 1 && params.source.stride_row < params.source.stride_col;
}

constexpr std::int64_t sum_units(const SumParams& params) {
  return sums_along_rows(params) ? (params.rows + kSumRows - 1) / kSumRows * params.batch
                                 : (params.rows * params.batch + kSumWarps - 1) / kSumWarps;
}

// s8 with its sign bits flipped is u8, 128 larger. So one unsigned instruction sums both, and what
// the flips add, `excess` for each byte that was summed, is taken off in the end.
struct Flip {
  std::uint32_t bits, excess;

  __device__ explicit Flip(DType type)
      : bits(type == DType::s8 ? 0x80808080u : 0), excess(type == DType::s8 ? 128 : 0) {}

  __device__ std::uint32_t add(std::uint32_t bytes, std::uint32_t sum) const {
    return __dp4a(bytes ^ bits, 0x01010101u, sum);
  }
  __device__ std::uint32_t element(const char* address) const {
    return (*reinterpret_cast<const std::uint8_t*>(address) ^ (bits & 255)) - excess;
  }
};

__device__ inline std::uint32_t warp_sum(std::uint32_t sum, int from, int to) {
  for (int distance = from; distance < to; distance *= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

// This lane's part of k neighbours: whole words, and the bytes before and behind them.
__device__ inline std::uint32_t sum_neighbours(const char* row, std::int64_t k, const Flip& flip) {
  const int lane = threadIdx.x % 32;
  const std::uint64_t policy = ptx::evict_first();
  const int shift = reinterpret_cast<std::uintptr_t>(row) % kChunk;
  const std::int64_t head = min(k, std::int64_t((kChunk - shift) % kChunk));
  const std::int64_t words = (k - head) / kChunk, tail = head + words * kChunk;
  std::uint32_t sum = 0;
  if (lane < head) sum += flip.element(row + lane);
  if (lane < k - tail) sum += flip.element(row + tail + lane);
#pragma unroll 4
  for (std::int64_t i = lane; i < words; i += 32) {
    const uint4 word = ptx::load(row + head + i * kChunk, policy);
    sum = flip.add(word.w, flip.add(word.z, flip.add(word.y, flip.add(word.x, sum))));
    sum -= kChunk * flip.excess;
  }
  return sum;
}

__device__ inline void sum_rows(const SumParams& params, std::int64_t unit) {
  const TensorRef& source = params.source;
  const std::int64_t index = unit * kSumWarps + threadIdx.x / 32;
  if (index >= params.rows * params.batch) return;
  const Flip flip(source.dtype);
  const int lane = threadIdx.x % 32;
  const std::int64_t batch = index / params.rows, row = index - batch * params.rows;
  const char* from =
      static_cast<const char*>(source.data) + batch * source.stride_batch + row * source.stride_row;
  std::uint32_t sum = 0;
  if (source.stride_col == 1) {
    sum = sum_neighbours(from, params.k, flip);
  } else {
#pragma unroll 4
    for (std::int64_t k = lane; k < params.k; k += 32)
      sum += flip.element(from + k * source.stride_col);
  }
  sum = warp_sum(sum, 1, 32);
  if (lane == 0) params.sums[index] = static_cast<std::int32_t>(sum);
}

__device__ inline void sum_columns(const SumParams& params, std::int64_t unit,
                                   std::uint32_t (&shared)[kSumWarps][kSumRows]) {
  const TensorRef& source = params.source;
  const Flip flip(source.dtype);
  const std::int64_t down = (params.rows + kSumRows - 1) / kSumRows;
  const std::int64_t batch = unit / down, row = (unit - batch * down) * kSumRows;
  const std::int64_t left = params.rows - row;
  Lines<1> lines;
  lines.source =
      static_cast<const char*>(source.data) + batch * source.stride_batch + row * source.stride_row;
  lines.stride_line = source.stride_col;
  lines.stride_element = source.stride_row;
  lines.lines = static_cast<int>(params.k);
  lines.begin = row == 0 ? 0 : -kChunk;
  lines.end = static_cast<int>(min(left, std::int64_t(kSumRows + kChunk)));
  lines.examine(lines.lines, kSumRows);
  const bool inside = lines.inside;

  const int group = threadIdx.x / 2, column = threadIdx.x % 2;
  std::uint32_t sums[kChunk] = {};
#pragma unroll 1
  for (int first = group * kThreadLines; first < lines.lines; first += kSumGroups * kThreadLines) {
    uint4 chunks[kThreadLines];
    std::uint32_t strips[kChunk][1];
    lines.inside = inside && first + kThreadLines <= lines.lines;
    lines.read(first, column, ptx::evict_first(), chunks);
    turn<1, 1>(chunks, strips);
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      sums[i] = flip.add(strips[i][0], sums[i]) - kThreadLines * flip.excess;
  }
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const std::uint32_t sum = warp_sum(sums[i], 2, 32);
    if (threadIdx.x % 32 < 2) shared[warp][column * kChunk + i] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kSumRows && threadIdx.x < left) {
    std::uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kSumWarps; ++i) sum += shared[i][threadIdx.x];
    params.sums[batch * params.rows + row + threadIdx.x] = static_cast<std::int32_t>(sum);
  }
  __syncthreads();  // before the next unit overwrites this one
}

__global__ void __launch_bounds__(kSumBlock, 3)
    sum_along_k(const __grid_constant__ SumParams params) {
  __shared__ std::uint32_t shared[kSumWarps][kSumRows];
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t unit = blockIdx.x; unit < sum_units(params); unit += gridDim.x) {
    if (sums_along_rows(params))
      sum_columns(params, unit, shared);
    else
      sum_rows(params, unit);
  }
}

}  // namespace tcgemm::passes
