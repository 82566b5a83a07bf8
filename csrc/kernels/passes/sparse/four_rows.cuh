// Reads any matrix as 16-byte vectors of four adjacent rows. The tiles and the loads are the same
// as in the repack pass (kernels/passes/repack.cuh); tiles of an MN-major matrix are transposed in
// shared memory.
#pragma once

#include <cstdint>

#include "kernels/passes/repack.cuh"

namespace tcgemm::sparse {

using kernels::kSparseThreads;
using passes::kRowsPerThread;
using passes::kVectorBytes;
static_assert(kSparseThreads == kernels::kRepackThreads);

template <int kSize>
using SharedBuffer = passes::TransposeBuffer<kSize, kSize, passes::kMnMajorDepth>;

// The coordinates of a thread's first vector in its tile.
struct VectorCoord {
  int row, column;  // columns count vectors
};

// The vectors of adjacent threads:
//
//   thread      ..           thread + 1
//   row 4 g     ################|################|..      elements outside of the matrix are zero
//   row 4 g + 1 ################|################|..
//   ..
//
// Calls f(tile, coord, vectors) for the tiles of this CTA, in all of its threads.
template <int kSize, class Function>
__device__ inline void for_each_four_rows(const CopyParams& matrix, SharedBuffer<kSize>& shared,
                                          const Function& f) {
  const std::int64_t all = passes::tile_count(matrix, kSize);
  for (std::int64_t index = blockIdx.x; index < all; index += gridDim.x) {
    const passes::Tile<kSize, kSize> tile(matrix, index);
    const int row_vectors =
        (tile.k_major ? passes::kKMajorRowBytes : passes::kMnMajorColumnBytes) / kVectorBytes;
    const int group = threadIdx.x / row_vectors, column = threadIdx.x % row_vectors;
    VectorCoord coord{group * kRowsPerThread, column};
    uint4 vectors[kRowsPerThread];
    tile.reader.read(group * kRowsPerThread, column, ptx::evict_first(), vectors);
    if (!tile.k_major) {
      std::uint32_t columns[kVectorBytes / kSize][kSize];
      passes::transpose<kSize, kSize>(vectors, columns);
      shared.put(column, group, columns);
      __syncthreads();
      constexpr int kRowVectors = SharedBuffer<kSize>::kRowVectors;
      static_assert(SharedBuffer<kSize>::kRows * kRowVectors == kSparseThreads * kRowsPerThread);
      coord = {static_cast<int>(threadIdx.x) / kRowVectors * kRowsPerThread,
               static_cast<int>(threadIdx.x) % kRowVectors};
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) vectors[i] = shared.get(coord.row + i, coord.column);
      __syncthreads();  // the next tile overwrites `shared`
    }
    f(tile, coord, vectors);
  }
}

// Loads the metadata of a vector, 4, 8 or 16 bits. `has_second_byte` guards the load of the second
// byte.
template <int kBits>
__device__ inline std::uint32_t load_metadata(const TensorRef& metadata, std::int64_t row,
                                              std::int64_t vector, bool has_second_byte) {
  const auto* code = static_cast<const std::uint8_t*>(metadata.data) + row * metadata.stride_row +
                     vector * kBits / 8 * metadata.stride_col;
  if constexpr (kBits == 4) return *code >> (vector % 2 * 4);
  return *code | (kBits == 16 && has_second_byte ? code[metadata.stride_col] << 8 : 0);
}

// Stores the first `count` elements of a vector, one by one.
template <int kSize, int kWords>
__device__ inline void store_elements(char* to, const std::uint32_t (&words)[kWords], int count) {
  using Type = typename passes::UnsignedOfSize<kSize>::Type;
#pragma unroll
  for (int i = 0; i < kWords * 4 / kSize; ++i)
    if (i < count)
      reinterpret_cast<Type*>(to)[i] = static_cast<Type>(words[i * kSize / 4] >> i * kSize % 4 * 8);
}

}  // namespace tcgemm::sparse
