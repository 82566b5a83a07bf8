// Gathers the values of w at the positions of its metadata (core/sparse.h), with the tiles of
// compress.cuh.
#pragma once

#include <cstdint>

#include "core/sparse_params.h"
#include "kernels/passes/sparse/four_rows.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::sparse {

// The values of one vector at the positions of its metadata.
template <int kSize, Pattern kPattern>
struct GatheredValues {
  static constexpr int kElements = kVectorBytes / kSize;
  static constexpr int kValues = kElements / 2;
  static constexpr int kCount = kElements / group(kPattern);
  static constexpr int kBits = kCount * 2 * kept(kPattern);  // of metadata

  std::uint32_t words[2];

  __device__ GatheredValues(const uint4& vector, std::uint32_t metadata) {
    const std::uint32_t x[4] = {vector.x, vector.y, vector.z, vector.w};
    const auto at = [&](int i) { return metadata >> 2 * i & 3; };
    if constexpr (kPattern == Pattern::one_of_two) {
      words[0] = (at(0) & 1) == 0 ? x[0] : x[1];
      words[1] = (at(1) & 1) == 0 ? x[2] : x[3];
    } else if constexpr (kSize == 4) {
      words[0] = select(x, at(0));
      words[1] = select(x, at(1));
    } else if constexpr (kSize == 2) {  // selects two byte pairs of a group
#pragma unroll
      for (int i = 0; i < 2; ++i)
        words[i] =
            __byte_perm(x[2 * i], x[2 * i + 1], 0x1010 + at(2 * i) * 0x22 + at(2 * i + 1) * 0x2200);
    } else {  // selects four bytes of two groups
      static_assert(kSize == 1);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        words[i] = __byte_perm(x[2 * i], x[2 * i + 1],
                               0x4400 + at(4 * i) + (at(4 * i + 1) << 4) + (at(4 * i + 2) << 8) +
                                   (at(4 * i + 3) << 12));
    }
  }

 private:
  __device__ static std::uint32_t select(const std::uint32_t (&x)[4], std::uint32_t at) {
    const std::uint32_t low = at & 1 ? x[1] : x[0], high = at & 1 ? x[3] : x[2];
    return at & 2 ? high : low;
  }
};

template <int kSize, Pattern kPattern>
__global__ void __launch_bounds__(kSparseThreads, 4)
    gather(const __grid_constant__ GatherParams params) {
  using G = GatheredValues<kSize, kPattern>;
  constexpr int kGroup = group(kPattern);
  __shared__ SharedBuffer<kSize> shared;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for_each_four_rows<kSize>(
      params.w, shared, [&](const auto& tile, VectorCoord coord, auto& vectors) {
        const std::int64_t row = tile.row + coord.row;
        const std::int64_t vector = tile.column / G::kElements + coord.column;
        const int k_left = tile.k - coord.column * G::kElements;
        const int groups = min(G::kCount, (k_left + kGroup - 1) / kGroup);
        const int rows = min(kRowsPerThread, tile.rows - coord.row);
        if (groups <= 0) return;
        std::uint32_t bits[kRowsPerThread];
#pragma unroll
        for (int i = 0; i < kRowsPerThread; ++i)
          if (i < rows)
            bits[i] =
                load_metadata<G::kBits>(params.metadata, row + i, vector, groups > G::kCount / 2);
        char* to = static_cast<char*>(params.w.copy) +
                   (row * params.w.pitch + vector * G::kValues) * kSize;
#pragma unroll
        for (int i = 0; i < kRowsPerThread; ++i, to += params.w.pitch * kSize) {
          if (i >= rows) continue;
          const G gathered(vectors[i], bits[i]);
          if (params.vector && groups == G::kCount)
            *reinterpret_cast<uint2*>(to) = {gathered.words[0], gathered.words[1]};
          else
            store_elements<kSize>(to, gathered.words, groups * kept(kPattern));
        }
      });
}

}  // namespace tcgemm::sparse
