// w -> w with zeros, as core/sparse.h defines it, by groups of rows or, transposable, by blocks of
// 4 x 4. A thread holds 16 bytes of four neighbouring rows: their groups, and whole blocks.
#pragma once

#include <cstdint>

#include "core/sparse_params.h"
#include "kernels/sparse/group.cuh"
#include "kernels/sparse/rows.cuh"
#include "kernels/sparse/transposable.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::sparse {

// What is not among the largest of its group becomes +0.
template <DType kType, Pattern kPattern>
__device__ inline void prune_groups(uint4& chunk) {
  using G = Groups<kType, kPattern>;
  std::uint32_t kept[4];
  G(chunk).largest(kept);
  if constexpr (G::kSize == 4) {
    chunk.x &= ptx::spread<4>(kept[0]), chunk.y &= ptx::spread<4>(kept[1]);
    chunk.z &= ptx::spread<4>(kept[2]), chunk.w &= ptx::spread<4>(kept[3]);
  } else if constexpr (G::kSize == 2) {
    chunk.x &= ptx::permute<0xdd99>(kept[0], kept[1]);
    chunk.y &= ptx::permute<0xdd99>(kept[2], kept[3]);
    chunk.z &= ptx::permute<0xffbb>(kept[0], kept[1]);
    chunk.w &= ptx::permute<0xffbb>(kept[2], kept[3]);
  } else {
    passes::turn_bytes(kept);
    chunk.x &= ptx::spread<1>(kept[0]), chunk.y &= ptx::spread<1>(kept[1]);
    chunk.z &= ptx::spread<1>(kept[2]), chunk.w &= ptx::spread<1>(kept[3]);
  }
}

template <int kSize>
__device__ inline void write_pruned(const PruneParams& params,
                                    const passes::Tile<kSize, kSize>& tile, const Place& place,
                                    uint4 (&chunks)[kThreadLines]) {
  constexpr int kElements = kChunk / kSize;
  const int left = tile.k - place.column * kElements;
  char* to = tile.copy + place.row * tile.pitch + place.column * kChunk;
  if (params.vector) {
#pragma unroll
    for (int i = 0; i < kThreadLines; ++i, to += tile.pitch)
      if (place.row + i < tile.rows && left > 0) *reinterpret_cast<uint4*>(to) = chunks[i];
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kThreadLines && place.row + i < tile.rows; ++i, to += tile.pitch) {
    const std::uint32_t words[4] = {chunks[0].x, chunks[0].y, chunks[0].z, chunks[0].w};
    write_elements<kSize>(to, words, left);
#pragma unroll
    for (int j = 1; j < kThreadLines; ++j) chunks[j - 1] = chunks[j];
  }
}

template <DType kType, Pattern kPattern>
__global__ void __launch_bounds__(kThreads, 4) prune(const __grid_constant__ PruneParams params) {
  constexpr int kSize = bytes(kType);
  __shared__ Shared<kSize> shared;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  each_four_rows<kSize>(params.w, shared, [&](const auto& tile, Place place, auto& chunks) {
#pragma unroll
    for (int i = 0; i < kThreadLines; ++i) prune_groups<kType, kPattern>(chunks[i]);
    write_pruned<kSize>(params, tile, place, chunks);
  });
}

// Three blocks an SM: sums of pairs want registers, and work by itself hides what loads take.
template <DType kType>
__global__ void __launch_bounds__(kThreads, kTransposableBlocks)
    prune_transposable(const __grid_constant__ PruneParams params) {
  constexpr int kSize = bytes(kType);
  __shared__ Shared<kSize> shared;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  each_four_rows<kSize>(params.w, shared, [&](const auto& tile, Place place, auto& chunks) {
    prune_blocks<kType>(chunks);
    write_pruned<kSize>(params, tile, place, chunks);
  });
}

}  // namespace tcgemm::sparse
