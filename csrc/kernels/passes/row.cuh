// A row that is quantised: chunks of x in, values out; and what threads need to agree on a scale.
//
// Chunks begin where the values are words, so that they are stored as such; where x begins is for
// line.cuh to deal with.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/passes/line.cuh"
#include "kernels/passes/max_abs.cuh"
#include "kernels/passes/values.cuh"

namespace tcgemm::passes {

inline constexpr int kQuantizeBlock = 256;  // threads
inline constexpr int kWarps = kQuantizeBlock / 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// 64-bit divisions are a hundred instructions, and next to never needed.
__device__ inline std::int64_t quotient(std::int64_t a, std::int64_t b) {
  return (a | b) >> 32 != 0 ? a / b : std::uint32_t(a) / std::uint32_t(b);
}

// A row of x and of values, or with a wide Index all of them.
template <DType kType, class Index = int>
struct Row {
  static constexpr int kSize = bytes(kType);
  static constexpr int kElements = kChunk / kSize;

  const char* source;
  std::int64_t stride;  // of the source's elements, bytes
  char* values;
  Index cols;
  int before;  // elements of chunk 0 that are not of the row

  __device__ Row(const QuantizeParams& params, std::int64_t index, bool aligned = true)
      : stride(kSize * params.x.stride_col), cols(static_cast<Index>(params.cols)) {
    const std::int64_t batch = quotient(index, params.rows), row = index - batch * params.rows;
    source = static_cast<const char*>(params.x.data) +
             kSize * (batch * params.x.stride_batch + row * params.x.stride_row);
    values = static_cast<char*>(params.values) + index * params.cols;
    before = aligned ? reinterpret_cast<std::uintptr_t>(values) % kElements : 0;
  }

  __device__ Index chunks() const { return (before + cols + kElements - 1) / kElements; }

  // Four chunks of each of kTeam threads, from chunk `base` on.
  template <int kTeam>
  __device__ void read(Index base, int thread, std::uint64_t policy,
                       uint4 (&chunks)[kThreadLines]) const {
    constexpr int kPiece = kTeam * kChunk, kBytes = kThreadLines * kPiece;
    const Index element = base * kElements - before;
    Lines<kSize, kPiece> lines;
    lines.source = source + element * stride;
    lines.stride_line = kTeam * kElements * stride;
    lines.stride_element = stride;
    lines.lines = kThreadLines;
    lines.begin = static_cast<int>(max(-element, Index(-kElements))) * kSize;
    lines.end = static_cast<int>(min(cols - element, Index(2 * kBytes / kSize))) * kSize;
    lines.examine(kThreadLines, kBytes);
    lines.read(0, thread, policy, chunks);
  }

  // What `read` has read of them. Pieces that are whole need no tests; the loop over the others is
  // rolled, and turns the chunks.
  template <int kTeam>
  __device__ void write(Index base, int thread, uint4 (&chunks)[kThreadLines],
                        const Divisor<kType>& divisor, DType type) const {
    constexpr int kPiece = kTeam * kElements;
    const Index first = base * kElements - before;
    const Index whole = first < 0 ? 0 : (cols - first) / kPiece;
    char* to = values + first + thread * kElements;
#pragma unroll
    for (int i = 0; i < kThreadLines; ++i)
      if (i < whole) Values<kType>(chunks[i], divisor, type).write(to + i * kPiece);
    if (whole >= kThreadLines) return;
    Index left = cols - first - thread * kElements;
#pragma unroll 1
    for (int i = 0; i < kThreadLines && left > 0; ++i) {
      if (i >= whole) {
        const int skipped = i == 0 && thread == 0 && first < 0 ? before : 0;
        const Values<kType> some(chunks[0], divisor, type);
        if (skipped == 0 && left >= kElements)
          some.write(to);
        else
          some.write(to, skipped, static_cast<int>(min(left, Index(kElements))));
      }
#pragma unroll
      for (int j = 1; j < kThreadLines; ++j) chunks[j - 1] = chunks[j];
      to += kPiece;
      left -= kPiece;
    }
  }
};

template <int kLanes>
__device__ inline float lanes_largest(float x) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

// Of a block. `shared` is another one the next time, so that one barrier is enough.
__device__ inline float block_largest(float x, float (&shared)[kWarps]) {
  x = lanes_largest<32>(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWarps; ++i) x = fmaxf(x, shared[i]);
  return x;
}

}  // namespace tcgemm::passes
