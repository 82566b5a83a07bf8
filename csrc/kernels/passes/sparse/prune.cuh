// Prunes w (core/sparse.h): by groups of a row, or in 4 x 4 blocks so that the transpose is 2:4
// too. A thread holds one 16-byte vector of each of four adjacent rows, and so whole groups and
// blocks.
#pragma once

#include <cstdint>

#include "core/sparse_params.h"
#include "kernels/passes/sparse/four_rows.cuh"
#include "kernels/passes/sparse/group.cuh"
#include "kernels/passes/sparse/transposable.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::sparse {

// Sets the elements that are not among the largest of their group to +0.
template <DType kType, Pattern kPattern>
__device__ inline void prune_groups(uint4& vector) {
  using G = Groups<kType, kPattern>;
  std::uint32_t kept[4];
  G(vector).keep_largest(kept);
  if constexpr (G::kSize == 4) {
    vector.x &= ptx::fill_sign<4>(kept[0]), vector.y &= ptx::fill_sign<4>(kept[1]);
    vector.z &= ptx::fill_sign<4>(kept[2]), vector.w &= ptx::fill_sign<4>(kept[3]);
  } else if constexpr (G::kSize == 2) {
    vector.x &= ptx::permute<0xdd99>(kept[0], kept[1]);
    vector.y &= ptx::permute<0xdd99>(kept[2], kept[3]);
    vector.z &= ptx::permute<0xffbb>(kept[0], kept[1]);
    vector.w &= ptx::permute<0xffbb>(kept[2], kept[3]);
  } else {
    static_assert(G::kSize == 1);
    passes::transpose_bytes(kept);
    vector.x &= ptx::fill_sign<1>(kept[0]), vector.y &= ptx::fill_sign<1>(kept[1]);
    vector.z &= ptx::fill_sign<1>(kept[2]), vector.w &= ptx::fill_sign<1>(kept[3]);
  }
}

template <int kSize>
__device__ inline void store_pruned(const PruneParams& params,
                                    const passes::Tile<kSize, kSize>& tile,
                                    const VectorCoord& coord, uint4 (&vectors)[kRowsPerThread]) {
  constexpr int kElements = kVectorBytes / kSize;
  const int k_left = tile.k - coord.column * kElements;
  char* to = tile.copy + coord.row * tile.pitch + coord.column * kVectorBytes;
  if (params.vector) {
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i, to += tile.pitch)
      if (coord.row + i < tile.rows && k_left > 0) *reinterpret_cast<uint4*>(to) = vectors[i];
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kRowsPerThread && coord.row + i < tile.rows; ++i, to += tile.pitch) {
    const std::uint32_t words[4] = {vectors[0].x, vectors[0].y, vectors[0].z, vectors[0].w};
    store_elements<kSize>(to, words, k_left);
#pragma unroll
    for (int j = 1; j < kRowsPerThread; ++j) vectors[j - 1] = vectors[j];
  }
}

template <DType kType, Pattern kPattern>
__global__ void __launch_bounds__(kSparseThreads, 4)
    prune(const __grid_constant__ PruneParams params) {
  constexpr int kSize = bytes(kType);
  __shared__ SharedBuffer<kSize> shared;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for_each_four_rows<kSize>(params.w, shared,
                            [&](const auto& tile, VectorCoord coord, auto& vectors) {
#pragma unroll
                              for (int i = 0; i < kRowsPerThread; ++i)
                                prune_groups<kType, kPattern>(vectors[i]);
                              store_pruned<kSize>(params, tile, coord, vectors);
                            });
}

// Three CTAs per SM: the sums of pairs need registers, and the arithmetic hides the loads.
template <DType kType>
__global__ void __launch_bounds__(kSparseThreads, kTransposableBlocks)
    prune_transposable(const __grid_constant__ PruneParams params) {
  constexpr int kSize = bytes(kType);
  __shared__ SharedBuffer<kSize> shared;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for_each_four_rows<kSize>(params.w, shared,
                            [&](const auto& tile, VectorCoord coord, auto& vectors) {
                              prune_blocks<kType>(vectors);
                              store_pruned<kSize>(params, tile, coord, vectors);
                            });
}

}  // namespace tcgemm::sparse
