// Decompresses values and metadata to w, as core/sparse.h defines them. A thread reads 8 bytes of
// values and the metadata of their groups, and writes one 16-byte vector of each of four adjacent
// rows; sixteen vectors of a row are adjacent. Unaligned operands are read and written one element
// at a time.
#pragma once

#include <cstdint>

#include "core/sparse_params.h"
#include "kernels/passes/sparse/four_rows.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::sparse {

// The tiles of w, which is contiguous.
constexpr passes::TileGrid decompress_grid(const DecompressParams& params, int size) {
  CopyParams w{};
  w.rows = params.rows;
  w.k = params.k;
  return passes::TileGrid(w, size, true);
}

template <int kSize, Pattern kPattern>
struct DecompressedVector {
  static constexpr int kElements = kVectorBytes / kSize;
  static constexpr int kValues = kElements / 2;
  static constexpr int kCodeBits = 2 * kept(kPattern);
  static constexpr int kBits = kElements / group(kPattern) * kCodeBits;  // of metadata

  std::uint32_t words[4];

  __device__ DecompressedVector(const std::uint32_t (&values)[2], std::uint32_t metadata) {
    if constexpr (kPattern == Pattern::one_of_two) {
      put(values[0], metadata & 3, words[0], words[1]);
      put(values[1], metadata >> 2 & 3, words[2], words[3]);
    } else if constexpr (kSize == 4) {
      const unsigned first = metadata & 3, second = metadata >> 2 & 3;
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        words[i] = second == i ? values[1] : first == i ? values[0] : 0;
    } else if constexpr (kSize == 2) {  // selectors of 4 and up give zero
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t selectors =
            set_selectors<8>(0x44444444u, metadata >> 4 * i, 0x10, 0x32);
        words[2 * i] = __byte_perm(values[i], 0, selectors & 0xffff);
        words[2 * i + 1] = __byte_perm(values[i], 0, selectors >> 16);
      }
    } else {
      static_assert(kSize == 1);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] =
            __byte_perm(values[i / 2], 0,
                        set_selectors<4>(0x4444u, metadata >> 4 * i, i % 2 * 2, i % 2 * 2 + 1));
    }
  }

 private:
  __device__ static void put(std::uint32_t value, unsigned at, std::uint32_t& x, std::uint32_t& y) {
    x = at == 0 ? value : 0;
    y = at == 1 ? value : 0;
  }

  // Replaces kWide bits of `selectors` at both positions of a code.
  template <int kWide>
  __device__ static std::uint32_t set_selectors(std::uint32_t selectors, std::uint32_t code,
                                                std::uint32_t first, std::uint32_t second) {
    constexpr std::uint32_t kOnes = (1u << kWide) - 1;
    const int a = (code & 3) * kWide, b = (code >> 2 & 3) * kWide;
    selectors = (selectors & ~(kOnes << a)) | first << a;
    return (selectors & ~(kOnes << b)) | second << b;
  }
};

template <int kSize, Pattern kPattern>
__global__ void __launch_bounds__(kSparseThreads, 4)
    decompress(const __grid_constant__ DecompressParams params) {
  using E = DecompressedVector<kSize, kPattern>;
  using Type = typename passes::UnsignedOfSize<kSize>::Type;
  constexpr int kGroup = group(kPattern), kRowVectors = passes::kKMajorRowBytes / kVectorBytes;
  ptx::launch_dependents();
  const passes::TileGrid grid = decompress_grid(params, kSize);
  ptx::wait_for_prerequisites();
  for (std::int64_t index = blockIdx.x; index < grid.tiles(); index += gridDim.x) {
    const std::uint32_t tile_row = static_cast<std::uint32_t>(index) / grid.tiles_k;
    const std::uint32_t tile_k = static_cast<std::uint32_t>(index) - tile_row * grid.tiles_k;
    const std::int64_t row =
        (std::int64_t(tile_row) << grid.rows) + threadIdx.x / kRowVectors * kRowsPerThread;
    const std::int64_t vector = std::int64_t(tile_k) * kRowVectors + threadIdx.x % kRowVectors;
    const std::int64_t column = vector * E::kElements, value = vector * E::kValues;
    const std::int64_t k_left = params.k - column;
    if (k_left <= 0) continue;
    const int values = static_cast<int>(
        min(std::int64_t(E::kValues), (k_left + kGroup - 1) / kGroup * kept(kPattern)));
    const int rows = static_cast<int>(min(std::int64_t(kRowsPerThread), params.rows - row));
    const auto* from = static_cast<const Type*>(params.values.data) +
                       row * params.values.stride_row + value * params.values.stride_col;
    char* to = static_cast<char*>(params.w) + (row * params.k + column) * kSize;
    const auto metadata_of = [&](int i) {
      return load_metadata<E::kBits>(params.metadata, row + i, vector, values > E::kValues / 2);
    };
    if (params.vector) {
      uint2 pairs[kRowsPerThread];
      std::uint32_t bits[kRowsPerThread];
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) {
        if (i >= rows) continue;
        pairs[i] = *reinterpret_cast<const uint2*>(from + i * params.values.stride_row);
        bits[i] = metadata_of(i);
      }
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) {
        if (i >= rows) continue;
        const E expanded({pairs[i].x, pairs[i].y}, bits[i]);
        *reinterpret_cast<uint4*>(to + i * params.k * kSize) = {
            expanded.words[0], expanded.words[1], expanded.words[2], expanded.words[3]};
      }
      continue;
    }
#pragma unroll 1
    for (int i = 0; i < rows; ++i) {
      std::uint32_t words[2];
      passes::gather_elements<kSize>(
          reinterpret_cast<const char*>(from + i * params.values.stride_row),
          params.values.stride_col * kSize, 0, values, words);
      const E expanded(words, metadata_of(i));
      store_elements<kSize>(to + i * params.k * kSize, expanded.words,
                            static_cast<int>(min(k_left, std::int64_t(E::kElements))));
    }
  }
}

}  // namespace tcgemm::sparse
