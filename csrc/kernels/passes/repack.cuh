// Repack: copies an operand of any strides to K-major with a pitch of whole 16-byte vectors, which
// TMA and cp.async can read. It converts f32 to bf16, or s4 and u4 to s8, if asked.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/params.h"
#include "kernels/kernels.h"
#include "kernels/passes/transpose.cuh"
#include "kernels/passes/vector_reader.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

// The smaller stride of the source decides its major. The source is cut into tiles of 16 KB, and
// a thread reads one 16-byte vector of each of four adjacent leading-dimension rows:
//
//   K-major   64 rows x 256 bytes; a vector is contiguous in the copy as well
//   MN-major  128 columns x 128 bytes; transposed in registers, then in shared memory
//
// Loads, stores and shared memory accesses of both are 16 bytes wide at any alignment. All loads of
// a tile are in flight before the first one is used.

inline constexpr int kKMajorRows = 64, kKMajorRowBytes = 256;  // the tile of a K-major source
// The tile of an MN-major source: 128 bytes of rows for each of 128 elements of k.
inline constexpr int kMnMajorDepth = 128, kMnMajorColumnBytes = 128;

// Bitwise operators avoid branches: every CTA evaluates this.
constexpr bool is_k_major(const TensorRef& source) {
  return (source.stride_col == 1) |
         ((source.stride_row != 1) & (source.stride_row >= source.stride_col));
}

constexpr int log2(int x) { return x == 1 ? 0 : 1 + log2(x / 2); }

// The tiles of one matrix. Device memory holds no copy of 2^32 tiles, so 32 bits count them.
struct TileGrid {
  int rows, k;  // of one tile, as log2
  std::uint32_t tiles_rows, tiles_k;

  constexpr TileGrid(const CopyParams& copy, int size, bool k_major)
      : rows(k_major ? log2(kKMajorRows) : log2(kMnMajorColumnBytes / size)),
        k(k_major ? log2(kKMajorRowBytes / size) : log2(kMnMajorDepth)),
        tiles_rows((std::uint32_t(copy.rows) + (1u << rows) - 1) >> rows),
        tiles_k((std::uint32_t(copy.k) + (1u << k) - 1) >> k) {}

  constexpr std::uint32_t tiles() const { return tiles_rows * tiles_k; }
};

constexpr std::int64_t tile_count(const CopyParams& copy, int size) {
  return TileGrid(copy, size, is_k_major(copy.source)).tiles() * copy.batch;
}

constexpr std::int64_t tile_count(const RepackParams& params, int size) {
  return tile_count(params.copies[0], size) +
         (params.count > 1 ? tile_count(params.copies[1], size) : 0);
}

// One tile of one copy. `rows` and `k` count from its corner.
template <int kIn, int kOut>
struct Tile {
  VectorReader<kIn> reader;
  char* copy;
  std::int64_t pitch;  // of the copy, in bytes
  int row, column;     // of the corner in the source
  int rows, k;         // that exist in this tile
  bool k_major;
  std::uint32_t fill;  // of unpack_int4

  __device__ Tile(const CopyParams& params, std::int64_t index)
      : k_major(is_k_major(params.source)), fill(params.source.dtype == DType::s4 ? 0x1e : 0) {
    const TensorRef& source = params.source;
    const TileGrid grid(params, kIn, k_major);
    std::int64_t batch = 0;
    if (params.batch > 1) {
      batch = index / grid.tiles();
      index -= batch * grid.tiles();
    }
    const std::uint32_t tile_row = static_cast<std::uint32_t>(index) / grid.tiles_k;
    row = tile_row << grid.rows;
    column = (static_cast<std::uint32_t>(index) - tile_row * grid.tiles_k) << grid.k;
    const int rows_left = static_cast<int>(params.rows) - row;
    const int k_left = static_cast<int>(params.k) - column;
    const std::int64_t stride_row = kIn * source.stride_row, stride_col = kIn * source.stride_col;
    pitch = kOut * params.pitch;
    copy = static_cast<char*>(params.copy) + (batch * params.rows + row) * pitch +
           std::int64_t(kOut) * column;
    rows = min(rows_left, 1 << grid.rows);
    k = min(k_left, 1 << grid.k);

    reader.source = static_cast<const char*>(source.data) + kIn * batch * source.stride_batch +
                    row * stride_row + column * stride_col;
    reader.ld_rows = k_major ? rows : k;
    reader.stride_ld_row = k_major ? stride_row : stride_col;
    reader.stride_element = k_major ? stride_col : stride_row;
    reader.begin = (k_major ? column : row) == 0 ? 0 : -kVectorBytes;
    reader.end = min(k_major ? k_left : rows_left, 2 * kKMajorRowBytes) * kIn;
    reader.examine(k_major ? kKMajorRows : kMnMajorDepth,
                   k_major ? kKMajorRowBytes : kMnMajorColumnBytes);
  }

  __device__ bool full() const {
    return rows * k * kIn == kKMajorRows * kKMajorRowBytes;  // MN-major tiles have as many bytes
  }
};

// kIn and kOut of a byte with two s4 or u4, which becomes two s8. Such a source is K-major.
template <int kIn, int kOut>
inline constexpr bool kUnpacks = kIn == 1 && kOut == 2;

// The four s8 of each half of the four bytes of `word`, the low bits of a byte first. `fill`: 0x1e
// copies the sign of an s4 to the upper four bits, 0 leaves a u4 as it is.
__device__ inline uint2 unpack_int4(std::uint32_t word, std::uint32_t fill) {
  std::uint32_t low = word & 0x0f0f0f0fu, high = word >> 4 & 0x0f0f0f0fu;
  low |= (low & 0x08080808u) * fill;
  high |= (high & 0x08080808u) * fill;
  return {__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362)};
}

// Stores vectors of int4, of which each becomes two vectors of s8. Lanes exchange halves, so that a
// pair of lanes stores 32 adjacent bytes, a sector of L2, at once.
template <int kIn, int kOut>
__device__ inline void store_unpacked(const Tile<kIn, kOut>& tile, int first, int column,
                                      const uint4 (&vectors)[kRowsPerThread]) {
  const bool odd = column % 2 != 0;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const uint4& own = vectors[i];
    const uint2 other = {__shfl_xor_sync(~0u, odd ? own.x : own.z, 1),
                         __shfl_xor_sync(~0u, odd ? own.y : own.w, 1)};
    const uint2 halves[2] = {odd ? other : uint2{own.x, own.y}, odd ? uint2{own.z, own.w} : other};
    const int row = first + i;
    if (row >= tile.rows) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int vector = column / 2 * 4 + half * 2 + odd;  // of s8; the pair of lanes has four
      if (vector * (kVectorBytes / 2) >= tile.k) continue;
      const uint2 low = unpack_int4(halves[half].x, tile.fill);
      const uint2 high = unpack_int4(halves[half].y, tile.fill);
      *reinterpret_cast<uint4*>(tile.copy + row * tile.pitch + vector * kVectorBytes) = {
          low.x, low.y, high.x, high.y};
    }
  }
}

// Stores vectors of a K-major source, which are contiguous in the copy.
template <int kIn, int kOut>
__device__ inline void store_k_major(const Tile<kIn, kOut>& tile, int first, int column,
                                     const uint4 (&vectors)[kRowsPerThread]) {
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int row = first + i;
    if (row >= tile.rows || column * (kVectorBytes / kIn) >= tile.k) continue;
    char* to = tile.copy + row * tile.pitch + column * (kVectorBytes / kIn * kOut);
    if constexpr (kIn == kOut) {
      *reinterpret_cast<uint4*>(to) = vectors[i];
    } else
      *reinterpret_cast<uint2*>(to) = {bf16_pair(vectors[i].x, vectors[i].y),
                                       bf16_pair(vectors[i].z, vectors[i].w)};
  }
}

// Transposes and stores vectors of an MN-major source. The elements that fill the last vector of a
// row of the copy are padding.
template <int kIn, int kOut>
__device__ inline void store_mn_major(const Tile<kIn, kOut>& tile, int group, int column,
                                      const uint4 (&vectors)[kRowsPerThread],
                                      TransposeBuffer<kIn, kOut, kMnMajorDepth>& shared) {
  using Buffer = TransposeBuffer<kIn, kOut, kMnMajorDepth>;
  std::uint32_t columns[kVectorBytes / kIn][kOut];
  transpose<kIn, kOut>(vectors, columns);
  shared.put(column, group, columns);
  __syncthreads();
#pragma unroll
  for (int round = 0; round < Buffer::kVectors / kernels::kRepackThreads; ++round) {
    const int i = round * kernels::kRepackThreads + threadIdx.x;
    const int row = i / Buffer::kRowVectors, vector = i % Buffer::kRowVectors;
    if (row < tile.rows && vector * (kVectorBytes / kOut) < tile.k)
      *reinterpret_cast<uint4*>(tile.copy + row * tile.pitch + vector * kVectorBytes) =
          shared.get(row, vector);
  }
  __syncthreads();  // the next tile overwrites `shared`
}

// Four CTAs per SM: 64 registers per thread hold all loads in flight.
template <int kIn, int kOut>
__global__ void __launch_bounds__(kernels::kRepackThreads, 4)
    repack(const __grid_constant__ RepackParams params) {
  // Nothing is transposed where bytes are unpacked.
  using Shared =
      std::conditional_t<kUnpacks<kIn, kOut>, char, TransposeBuffer<kIn, kOut, kMnMajorDepth>>;
  __shared__ Shared shared;
  ptx::launch_dependents();
  const std::int64_t first_tiles = tile_count(params.copies[0], kIn);
  const std::int64_t all_tiles = tile_count(params, kIn);
  for (std::int64_t index = blockIdx.x; index < all_tiles; index += gridDim.x) {
    const bool second = index >= first_tiles;
    const CopyParams& copy = params.copies[second];
    const Tile<kIn, kOut> tile(copy, second ? index - first_tiles : index);
    const int row_vectors = (tile.k_major ? kKMajorRowBytes : kMnMajorColumnBytes) / kVectorBytes;
    const int group = threadIdx.x / row_vectors, column = threadIdx.x % row_vectors;
    uint4 vectors[kRowsPerThread];
    ptx::wait_for_prerequisites();  // only now: finding the tile reads no global memory
    tile.reader.read(group * kRowsPerThread, column, ptx::evict_first(), vectors);
    if constexpr (kUnpacks<kIn, kOut>)
      store_unpacked(tile, group * kRowsPerThread, column, vectors);
    else if (tile.k_major)
      store_k_major(tile, group * kRowsPerThread, column, vectors);
    else
      store_mn_major(tile, group, column, vectors, shared);
  }
}

}  // namespace tcgemm::passes
