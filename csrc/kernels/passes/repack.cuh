// Any matrix -> K-major with a 16-byte pitch, f32 as bf16 if asked: what TMA and cp.async can read.
//
// The source is seen as lines, along whichever of k and rows its elements lie closer together, and
// cut into tiles of 16 KB. A thread reads a chunk of 16 bytes of four neighbouring lines:
//
//   lines are rows : 64 lines x 256 bytes; each chunk is a piece of a row of the copy
//   lines of k     : 128 lines x 128 bytes; turned in registers, then in shared memory (turn.cuh)
//
// Loads, stores and what crosses shared memory are 16 bytes wide in both, whatever the alignment,
// and all loads of a tile are on their way before the first is used.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/passes/line.cuh"
#include "kernels/passes/transpose.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

inline constexpr int kThreads = 256;
inline constexpr int kRowLines = 64, kRowBytes = 256;         // of a tile whose lines are rows
inline constexpr int kColumnLines = 128, kColumnBytes = 128;  // of one whose lines are of k

// Without branches: every block asks.
constexpr bool lines_are_rows(const TensorRef& source) {
  return (source.stride_col == 1) |
         ((source.stride_row != 1) & (source.stride_row >= source.stride_col));
}

constexpr int log2(int x) { return x == 1 ? 0 : 1 + log2(x / 2); }

// The tiles of one matrix: there is no memory for a copy of 2^32 of them.
struct Grid {
  int rows, k;  // of one tile, as powers of 2
  std::uint32_t down, across;

  constexpr Grid(const CopyParams& copy, int size, bool by_row)
      : rows(by_row ? log2(kRowLines) : log2(kColumnBytes / size)),
        k(by_row ? log2(kRowBytes / size) : log2(kColumnLines)),
        down((std::uint32_t(copy.rows) + (1u << rows) - 1) >> rows),
        across((std::uint32_t(copy.k) + (1u << k) - 1) >> k) {}

  constexpr std::uint32_t tiles() const { return down * across; }
};

constexpr std::int64_t tiles(const CopyParams& copy, int size) {
  return Grid(copy, size, lines_are_rows(copy.source)).tiles() * copy.batch;
}

constexpr std::int64_t tiles(const RepackParams& params, int size) {
  return tiles(params.copies[0], size) + (params.count > 1 ? tiles(params.copies[1], size) : 0);
}

// One tile of one copy; rows and k count from its corner.
template <int kIn, int kOut>
struct Tile {
  Lines<kIn> lines;
  char* copy;
  std::int64_t pitch;  // of the copy, bytes
  int row, column;     // of the corner
  int rows, k;         // from the corner to the end, at most a tile
  bool by_row;

  __device__ Tile(const CopyParams& params, std::int64_t index)
      : by_row(lines_are_rows(params.source)) {
    const TensorRef& from = params.source;
    const Grid grid(params, kIn, by_row);
    std::int64_t batch = 0;
    if (params.batch > 1) {
      batch = index / grid.tiles();
      index -= batch * grid.tiles();
    }
    const std::uint32_t down = static_cast<std::uint32_t>(index) / grid.across;
    row = down << grid.rows;
    column = (static_cast<std::uint32_t>(index) - down * grid.across) << grid.k;
    const int below = static_cast<int>(params.rows) - row;
    const int right = static_cast<int>(params.k) - column;
    const std::int64_t stride_row = kIn * from.stride_row, stride_col = kIn * from.stride_col;
    pitch = kOut * params.pitch;
    copy = static_cast<char*>(params.copy) + (batch * params.rows + row) * pitch +
           std::int64_t(kOut) * column;
    rows = min(below, 1 << grid.rows);
    k = min(right, 1 << grid.k);

    lines.source = static_cast<const char*>(from.data) + kIn * batch * from.stride_batch +
                   row * stride_row + column * stride_col;
    lines.lines = by_row ? rows : k;
    lines.stride_line = by_row ? stride_row : stride_col;
    lines.stride_element = by_row ? stride_col : stride_row;
    lines.begin = (by_row ? column : row) == 0 ? 0 : -kChunk;
    lines.end = min(by_row ? right : below, 2 * kRowBytes) * kIn;
    lines.examine(by_row ? kRowLines : kColumnLines, by_row ? kRowBytes : kColumnBytes);
  }

  __device__ bool whole() const {
    return rows * k * kIn == kRowLines * kRowBytes;  // or of the other kind, which is as large
  }
};

// Chunks that lie along k of the copy already.
template <int kIn, int kOut>
__device__ inline void write_rows(const Tile<kIn, kOut>& tile, int first, int column,
                                  const uint4 (&chunks)[kThreadLines]) {
#pragma unroll
  for (int i = 0; i < kThreadLines; ++i) {
    const int row = first + i;
    if (row >= tile.rows || column * (kChunk / kIn) >= tile.k) continue;
    char* to = tile.copy + row * tile.pitch + column * (kChunk / kIn * kOut);
    if constexpr (kIn == kOut)
      *reinterpret_cast<uint4*>(to) = chunks[i];
    else
      *reinterpret_cast<uint2*>(to) = {bf16_pair(chunks[i].x, chunks[i].y),
                                       bf16_pair(chunks[i].z, chunks[i].w)};
  }
}

// Chunks that lie across k. Elements of k that fill up the last 16 bytes of a row are padding.
template <int kIn, int kOut>
__device__ inline void write_columns(const Tile<kIn, kOut>& tile, int group, int column,
                                     const uint4 (&chunks)[kThreadLines],
                                     TransposeBuffer<kIn, kOut, kColumnLines>& shared) {
  using Shared = TransposeBuffer<kIn, kOut, kColumnLines>;
  std::uint32_t strips[kChunk / kIn][kOut];
  turn<kIn, kOut>(chunks, strips);
  shared.put(column, group, strips);
  __syncthreads();
#pragma unroll
  for (int round = 0; round < Shared::kChunks / kThreads; ++round) {
    const int i = round * kThreads + threadIdx.x;
    const int row = i / Shared::kRowChunks, chunk = i % Shared::kRowChunks;
    if (row < tile.rows && chunk * (kChunk / kOut) < tile.k)
      *reinterpret_cast<uint4*>(tile.copy + row * tile.pitch + chunk * kChunk) =
          shared.get(row, chunk);
  }
  __syncthreads();  // before the next tile overwrites this one
}

// Four blocks an SM: 64 registers a thread hold what is in flight.
template <int kIn, int kOut>
__global__ void __launch_bounds__(kThreads, 4) repack(const __grid_constant__ RepackParams params) {
  __shared__ TransposeBuffer<kIn, kOut, kColumnLines> shared;
  ptx::launch_dependents();
  const std::int64_t first = tiles(params.copies[0], kIn), all = tiles(params, kIn);
  for (std::int64_t index = blockIdx.x; index < all; index += gridDim.x) {
    const bool second = index >= first;
    const CopyParams& copy = params.copies[second];
    const Tile<kIn, kOut> tile(copy, second ? index - first : index);
    const int across = (tile.by_row ? kRowBytes : kColumnBytes) / kChunk;
    const int group = threadIdx.x / across, column = threadIdx.x % across;
    uint4 chunks[kThreadLines];
    ptx::wait_for_prerequisites();  // as late as this: finding the tile takes its time
    tile.lines.read(group * kThreadLines, column, ptx::evict_first(), chunks);
    if (tile.by_row)
      write_rows(tile, group * kThreadLines, column, chunks);
    else
      write_columns(tile, group, column, chunks, shared);
  }
}

}  // namespace tcgemm::passes
