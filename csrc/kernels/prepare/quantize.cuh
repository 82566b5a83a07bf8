// x -> values of 8 bits and one scale for each group of elements: core/quantize.h.
//
//   row      a warp or a block a row, which shared memory holds between maximum and division; what
//            it cannot hold is read twice
//   1x128    16 lanes (32 for f32) a row of four groups
//   128x128  a block a group
//   tensor   two kernels: the largest element, by an atomic maximum a block, then the division,
//            which walks backwards so that it begins with what L2 still holds
//
// Chunks of a row begin where its values are words, so that they are stored as such; where x begins
// is for line.cuh to deal with.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/prepare/largest.cuh"
#include "kernels/prepare/line.cuh"
#include "kernels/prepare/values.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::prepare {

inline constexpr int kQuantizeBlock = 256;  // threads
inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarps = kQuantizeBlock / 32;
inline constexpr int kQuad =
    4 * kScaleBlock;             // columns of the four groups that 1x128 reads at once
inline constexpr int kSpan = 8;  // chunks a thread of "tensor"
inline constexpr int kHeld = 2;  // rounds of four chunks a thread of "row"

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
    lines.contiguous = stride == kSize;
    lines.aligned =
        lines.contiguous && reinterpret_cast<std::uintptr_t>(lines.source) % kChunk == 0;
    lines.inside = lines.contiguous && lines.begin <= (lines.aligned ? 0 : -kChunk) &&
                   lines.end >= kBytes + (lines.aligned ? 0 : kChunk);
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

// A row for each kTeam threads, 32 or the block. Between maximum and division shared memory holds
// what kHeld rounds have read: registers cannot be counted through, and unrolled rounds would
// spill. Rows that have more rounds are read twice, the second time from L2.
template <DType kType, int kTeam, bool kTwice>
__global__ void __launch_bounds__(kQuantizeBlock, kTwice ? 3 : 4)
    quantize_rows(const __grid_constant__ QuantizeParams params) {
  __shared__ uint4 held[kTwice ? 1 : kHeld][kThreadLines][kQuantizeBlock];
  __shared__ float shared[2][kWarps];
  constexpr int kTeams = kQuantizeBlock / kTeam, kRound = kThreadLines * kTeam;
  const int thread = threadIdx.x % kTeam;
  const std::int64_t rows = params.rows * params.batch;
  int turn = 0;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t index = std::int64_t(blockIdx.x) * kTeams + threadIdx.x / kTeam; index < rows;
       index += std::int64_t(gridDim.x) * kTeams, turn ^= 1) {
    const Row<kType> row(params, index);
    const int rounds = (row.chunks() + kRound - 1) / kRound;
    Largest<kType> largest;
    uint4 chunks[kThreadLines];
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      row.template read<kTeam>(round * kRound, thread,
                               kTwice ? ptx::evict_normal() : ptx::evict_first(), chunks);
#pragma unroll
      for (int i = 0; i < kThreadLines; ++i) {
        largest.add(chunks[i]);
        if constexpr (!kTwice) held[round][i][threadIdx.x] = chunks[i];
      }
    }
    const float amax = kTeam == 32 ? lanes_largest<32>(largest.value())
                                   : block_largest(largest.value(), shared[turn]);
    const float scale = scale_of(amax, params.to);
    if (thread == 0) params.scales[index] = scale;
    const Divisor<kType> divisor(scale);
#pragma unroll 1
    for (int round = rounds - 1; round >= 0; --round) {
      if constexpr (kTwice) {
        row.template read<kTeam>(round * kRound, thread, ptx::evict_first(), chunks);
      } else {
#pragma unroll
        for (int i = 0; i < kThreadLines; ++i) chunks[i] = held[round][i][threadIdx.x];
      }
      row.template write<kTeam>(round * kRound, thread, chunks, divisor, params.to);
    }
  }
}

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
    const float inverse = prepare::inverse(scale);
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
    const Source& x = params.x;
    const int rows = static_cast<int>(min(params.rows - row, std::int64_t(kScaleBlock)));
    Lines<kSize> lines;
    lines.stride_line = kSize * x.stride_row;
    lines.stride_element = kSize * x.stride_col;
    lines.source = static_cast<const char*>(x.data) + kSize * batch * x.stride_batch +
                   row * lines.stride_line + col * lines.stride_element;
    lines.lines = rows;
    lines.begin = col == 0 ? 0 : -kChunk;
    lines.end = static_cast<int>(min(params.cols - col, std::int64_t(2 * kScaleBlock))) * kSize;
    lines.contiguous = x.stride_col == 1;
    lines.aligned =
        lines.contiguous &&
        (reinterpret_cast<std::uintptr_t>(lines.source) | lines.stride_line) % kChunk == 0;
    lines.inside = lines.contiguous && rows == kScaleBlock && (lines.aligned || col != 0) &&
                   lines.end >= kScaleBlock * kSize + (lines.aligned ? 0 : kChunk);

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

// Without gaps between rows or batches a tensor is one long row.
constexpr QuantizeParams flat(QuantizeParams params) {
  const Source& x = params.x;
  if (x.stride_col == 1 && (params.rows == 1 || x.stride_row == params.cols)) {
    params.cols *= params.rows;
    params.rows = 1;
    if (params.batch == 1 || x.stride_batch == params.cols) {
      params.cols *= params.batch;
      params.batch = 1;
    }
  }
  return params;
}

// Spans of a row: kSpan chunks for each thread, and room for one that is not whole.
constexpr std::int64_t spans_across(const QuantizeParams& params, int size) {
  return ceil_div(params.cols + kChunk / size - 1, kQuantizeBlock * kSpan * kChunk / size);
}

constexpr std::int64_t spans(const QuantizeParams& params, int size) {
  return params.rows * params.batch * spans_across(params, size);
}

// f(row, first chunk) for the spans of this block, four chunks a thread at a time.
template <DType kType, class Function>
__device__ inline void each_span(const QuantizeParams& params, bool backwards, const Function& f) {
  const std::int64_t across = spans_across(params, bytes(kType));
  const std::int64_t all = spans(params, bytes(kType));
  for (std::int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const std::int64_t span = backwards ? all - 1 - i : i;
    const std::int64_t index = quotient(span, across);
    const Row<kType, std::int64_t> row(params, index);
    std::int64_t base = (span - index * across) * (kQuantizeBlock * kSpan);
#pragma unroll 1
    for (int j = 0; j < kSpan; j += kThreadLines, base += kQuantizeBlock * kThreadLines)
      if (base < row.chunks()) f(row, base);
  }
}

template <DType kType>
__global__ void __launch_bounds__(kQuantizeBlock, 4)
    largest_of_tensor(const __grid_constant__ QuantizeParams asked) {
  __shared__ float shared[kWarps];
  const QuantizeParams params = flat(asked);
  Largest<kType> largest;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  each_span<kType>(params, false, [&](const auto& row, std::int64_t base) {
    uint4 chunks[kThreadLines];
    row.template read<kQuantizeBlock>(base, threadIdx.x, ptx::evict_normal(), chunks);
#pragma unroll
    for (int i = 0; i < kThreadLines; ++i) largest.add(chunks[i]);
  });
  const float amax = block_largest(largest.value(), shared);
  if (threadIdx.x == 0) atomicMax(params.amax, __float_as_uint(amax));
}

template <DType kType>
__global__ void __launch_bounds__(kQuantizeBlock, 4)
    quantize_tensor(const __grid_constant__ QuantizeParams asked) {
  const QuantizeParams params = flat(asked);
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  const float scale = scale_of(__uint_as_float(*params.amax), params.to);
  if (blockIdx.x == 0 && threadIdx.x == 0) *params.scales = scale;
  const Divisor<kType> divisor(scale);
  each_span<kType>(params, true, [&](const auto& row, std::int64_t base) {
    uint4 chunks[kThreadLines];
    row.template read<kQuantizeBlock>(base, threadIdx.x, ptx::evict_first(), chunks);
    row.template write<kQuantizeBlock>(base, threadIdx.x, chunks, divisor, params.to);
  });
}

}  // namespace tcgemm::prepare
