// Any matrix -> chunks of 16 bytes of four neighbouring rows, as the prepare pass cuts and reads it
// (kernels/passes/repack.cuh):
//
//   lines are rows : read as such            lines of k : turned in shared memory
//
//   thread      ..           thread + 1
//   row 4 g     ################|################|..      elements outside of the matrix are zero
//   row 4 g + 1 ################|################|..
//   ..
#pragma once

#include <cstdint>

#include "kernels/passes/repack.cuh"

namespace tcgemm::sparse {

using passes::kChunk;
using passes::kThreadLines;
using passes::kThreads;

template <int kSize>
using Shared = passes::TransposeBuffer<kSize, kSize, passes::kColumnLines>;

// Where the chunks of a thread are in their tile.
struct Place {
  int row, column;  // of the first; columns are chunks
};

// f(tile, place, chunks) for the tiles of this block; all of its threads come here.
template <int kSize, class Function>
__device__ inline void each_four_rows(const CopyParams& matrix, Shared<kSize>& shared,
                                      const Function& f) {
  const std::int64_t all = passes::tiles(matrix, kSize);
  for (std::int64_t index = blockIdx.x; index < all; index += gridDim.x) {
    const passes::Tile<kSize, kSize> tile(matrix, index);
    const int across = (tile.by_row ? passes::kRowBytes : passes::kColumnBytes) / kChunk;
    const int group = threadIdx.x / across, column = threadIdx.x % across;
    Place place{group * kThreadLines, column};
    uint4 chunks[kThreadLines];
    tile.lines.read(group * kThreadLines, column, ptx::evict_first(), chunks);
    if (!tile.by_row) {
      std::uint32_t strips[kChunk / kSize][kSize];
      passes::turn<kSize, kSize>(chunks, strips);
      shared.put(column, group, strips);
      __syncthreads();
      constexpr int kAcross = Shared<kSize>::kRowChunks;
      static_assert(Shared<kSize>::kRows * kAcross == kThreads * kThreadLines);
      place = {static_cast<int>(threadIdx.x) / kAcross * kThreadLines,
               static_cast<int>(threadIdx.x) % kAcross};
#pragma unroll
      for (int i = 0; i < kThreadLines; ++i) chunks[i] = shared.get(place.row + i, place.column);
      __syncthreads();  // before the next tile overwrites this one
    }
    f(tile, place, chunks);
  }
}

// The metadata of a chunk, of which it has kBits: 4, 8 or 16. The second byte is read where `more`
// says that there is one.
template <int kBits>
__device__ inline std::uint32_t codes(const TensorRef& metadata, std::int64_t row,
                                      std::int64_t chunk, bool more) {
  const auto* code = static_cast<const std::uint8_t*>(metadata.data) + row * metadata.stride_row +
                     chunk * kBits / 8 * metadata.stride_col;
  if constexpr (kBits == 4) return *code >> (chunk % 2 * 4);
  return *code | (kBits == 16 && more ? code[metadata.stride_col] << 8 : 0);
}

// The first `count` elements of a chunk, one by one.
template <int kSize, int kWords>
__device__ inline void write_elements(char* to, const std::uint32_t (&words)[kWords], int count) {
  using Type = typename passes::Integer<kSize>::Type;
#pragma unroll
  for (int i = 0; i < kWords * 4 / kSize; ++i)
    if (i < count)
      reinterpret_cast<Type*>(to)[i] = static_cast<Type>(words[i * kSize / 4] >> i * kSize % 4 * 8);
}

}  // namespace tcgemm::sparse
