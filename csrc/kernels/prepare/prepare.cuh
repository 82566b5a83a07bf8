// Any matrix of 2-byte elements -> K-major with a 16-byte pitch: what TMA and cp.async can read.
//
// The copy is cut into tiles of 64 rows x 128 of k. A thread gathers chunks of 8 neighbours along
// k, which it writes as one 16-byte word. What lies close together in the source decides who takes
// what:
//
//   along k    : 16 threads a row; where k is contiguous a chunk is cut out of two aligned words
//   along rows : 32 rows a warp, one chunk each, so that the loads of an element coalesce; the tile
//                is turned in shared memory, so that the stores coalesce too
//
// Bound by bandwidth in both, whatever the alignment.
#pragma once

#include <cstdint>

#include "core/params.h"

namespace tcgemm::prepare {

inline constexpr int kThreads = 256;
inline constexpr int kTileRows = 64;
inline constexpr int kTileColumns = 128;  // of k
inline constexpr int kChunk = 8;          // elements of a 16-byte word
inline constexpr int kRowChunks = kTileColumns / kChunk;
inline constexpr int kTileChunks = kTileRows * kRowChunks;
inline constexpr int kRounds = kTileChunks / kThreads;
static_assert(kRounds * kThreads == kTileChunks);

constexpr std::int64_t tiles(const PrepareParams& params) {
  return (params.rows + kTileRows - 1) / kTileRows *
         ((params.k + kTileColumns - 1) / kTileColumns) * params.batch;
}

// The 16 bytes that begin `shift` bytes, an even number, into the first of two words.
__device__ inline uint4 shifted(uint4 low, uint4 high, unsigned shift) {
  std::uint32_t x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; ++i) x[i] = shift & 8 ? x[i + 2] : x[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) x[i] = shift & 4 ? x[i + 1] : x[i];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = shift & 2 ? __funnelshift_r(x[i], x[i + 1], 16) : x[i];
  return {x[0], x[1], x[2], x[3]};
}

// `valid` elements, `stride` bytes apart; the others are zero.
__device__ inline uint4 load_elements(const char* address, std::int64_t stride, int valid) {
  std::uint32_t x[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    x[i] = i < valid ? __ldg(reinterpret_cast<const std::uint16_t*>(address)) : 0;
    address += stride;
  }
  return {x[0] | x[1] << 16, x[2] | x[3] << 16, x[4] | x[5] << 16, x[6] | x[7] << 16};
}

// One tile of one matrix; rows and columns count from its corner.
struct Tile {
  const char* source;
  char* copy;
  std::int64_t stride_row, stride_col;  // of the source, bytes
  std::int64_t pitch;                   // of the copy, bytes
  int rows, columns;                    // from the corner to the end, at most a tile
  bool whole_left, whole_right;         // the row goes on by a word on that side of the tile

  __device__ Tile(const PrepareParams& params, std::int64_t index) {
    const std::int64_t across = (params.k + kTileColumns - 1) / kTileColumns;
    const std::int64_t down = (params.rows + kTileRows - 1) / kTileRows;
    const std::int64_t col = index % across * kTileColumns;
    const std::int64_t row = index / across % down * kTileRows;
    const std::int64_t batch = index / across / down;
    stride_row = 2 * params.source.stride_row;
    stride_col = 2 * params.source.stride_col;
    pitch = 2 * params.pitch;
    source = static_cast<const char*>(params.source.data) + 2 * batch * params.source.stride_batch +
             row * stride_row + col * stride_col;
    copy = static_cast<char*>(params.copy) + (batch * params.rows + row) * pitch + 2 * col;
    rows = static_cast<int>(min(params.rows - row, std::int64_t(kTileRows)));
    columns = static_cast<int>(min(params.k - col, std::int64_t(kTileColumns)));
    whole_left = col > 0;
    whole_right = params.k - col >= kTileColumns + kChunk;
  }

  // Elements of a chunk that exist: at most 8, none if not positive.
  __device__ int valid(int row, int chunk) const {
    return row < rows ? columns - chunk * kChunk : 0;
  }

  __device__ const char* address(int row, int chunk) const {
    return source + row * stride_row + chunk * kChunk * stride_col;
  }

  __device__ uint4 load(int row, int chunk) const {
    return load_elements(address(row, chunk), stride_col, valid(row, chunk));
  }

  // For contiguous k: do the aligned words that a chunk touches lie inside its row?
  __device__ bool inside(int row, int chunk) const {
    if (valid(row, chunk) < kChunk) return false;
    const bool left = chunk > 0 || whole_left;
    const bool right = valid(row, chunk) >= 2 * kChunk || whole_right;
    return (left && right) || shift(row, chunk) == 0;
  }

  __device__ unsigned shift(int row, int chunk) const {
    return reinterpret_cast<std::uintptr_t>(address(row, chunk)) % 16;
  }

  // The rest of the last word is padding.
  __device__ void store(int row, int chunk, uint4 word) const {
    if (valid(row, chunk) > 0) *reinterpret_cast<uint4*>(copy + row * pitch + chunk * 16) = word;
  }
};

// Chunk `round` of this thread, where a row's chunks lie in neighbouring threads.
struct Place {
  int row, chunk;
  __device__ explicit Place(int round)
      : row((round * kThreads + threadIdx.x) / kRowChunks), chunk(threadIdx.x % kRowChunks) {}
};

// Contiguous k: every load is on its way before the first is used. Ends of rows, where the words
// reach beyond it, are read element by element.
__device__ inline void copy_contiguous(const Tile& tile) {
  uint4 low[kRounds], high[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const Place at(i);
    const unsigned shift = tile.shift(at.row, at.chunk);
    const uint4* words = reinterpret_cast<const uint4*>(tile.address(at.row, at.chunk) - shift);
    const bool inside = tile.inside(at.row, at.chunk);
    low[i] = inside ? __ldg(words) : uint4{};
    high[i] = inside && shift != 0 ? __ldg(words + 1) : uint4{};
  }
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const Place at(i);
    if (tile.inside(at.row, at.chunk))
      tile.store(at.row, at.chunk, shifted(low[i], high[i], tile.shift(at.row, at.chunk)));
  }
#pragma unroll 1
  for (int i = 0; i < kRounds; ++i) {
    const Place at(i);
    if (!tile.inside(at.row, at.chunk)) tile.store(at.row, at.chunk, tile.load(at.row, at.chunk));
  }
}

__device__ inline void copy_along_k(const Tile& tile) {
#pragma unroll 2
  for (int i = 0; i < kRounds; ++i) {
    const Place at(i);
    tile.store(at.row, at.chunk, tile.load(at.row, at.chunk));
  }
}

// Eight threads that write one chunk of eight rows, or read eight chunks of one row, meet eight
// different groups of banks.
__device__ constexpr int turned(int row, int chunk) {
  return row * kRowChunks + (chunk ^ (row & 7));
}

__device__ inline void copy_along_rows(const Tile& tile, uint4 (&shared)[kTileChunks]) {
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int at = i * kThreads + threadIdx.x, row = at % kTileRows, chunk = at / kTileRows;
    shared[turned(row, chunk)] = tile.load(row, chunk);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const Place at(i);
    tile.store(at.row, at.chunk, shared[turned(at.row, at.chunk)]);
  }
  __syncthreads();  // before the next tile overwrites this one
}

// Three blocks an SM: 80 registers a thread hold what is in flight.
__global__ void __launch_bounds__(kThreads, 3)
    repack(const __grid_constant__ PrepareParams params) {
  __shared__ uint4 shared[kTileChunks];
  const Source& source = params.source;
  for (std::int64_t index = blockIdx.x; index < tiles(params); index += gridDim.x) {
    const Tile tile(params, index);
    if (source.stride_col == 1)
      copy_contiguous(tile);
    else if (source.stride_row < source.stride_col)
      copy_along_rows(tile, shared);
    else
      copy_along_k(tile);
  }
}

}  // namespace tcgemm::prepare
