// values and metadata -> w, as core/sparse.h defines them. A thread writes 16 bytes of four
// neighbouring rows, sixteen chunks side by side, out of 8 bytes of values and the metadata of its
// groups. What does not lie in words is read and written one by one.
#pragma once

#include <cstdint>

#include "core/sparse_params.h"
#include "kernels/sparse/rows.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::sparse {

// The place of a block's tile in w, which is contiguous.
constexpr passes::Grid decompress_grid(const DecompressParams& params, int size) {
  CopyParams w{};
  w.rows = params.rows;
  w.k = params.k;
  return passes::Grid(w, size, true);
}

template <int kSize, Pattern kPattern>
struct Expanded {
  static constexpr int kElements = kChunk / kSize;
  static constexpr int kValues = kElements / 2;
  static constexpr int kCodeBits = 2 * kept(kPattern);
  static constexpr int kBits = kElements / group(kPattern) * kCodeBits;  // of metadata

  std::uint32_t words[4];

  __device__ Expanded(const std::uint32_t (&values)[2], std::uint32_t metadata) {
    if constexpr (kPattern == Pattern::one_of_two) {
      choose(values[0], metadata & 3, words[0], words[1]);
      choose(values[1], metadata >> 2 & 3, words[2], words[3]);
    } else if constexpr (kSize == 4) {
      const unsigned first = metadata & 3, second = metadata >> 2 & 3;
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        words[i] = second == i ? values[1] : first == i ? values[0] : 0;
    } else if constexpr (kSize ==
                         2) {  // selectors of two bytes for each element; 4 and up are zero
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t selectors = place<8>(0x44444444u, metadata >> 4 * i, 0x10, 0x32);
        words[2 * i] = __byte_perm(values[i], 0, selectors & 0xffff);
        words[2 * i + 1] = __byte_perm(values[i], 0, selectors >> 16);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = __byte_perm(values[i / 2], 0,
                               place<4>(0x4444u, metadata >> 4 * i, i % 2 * 2, i % 2 * 2 + 1));
    }
  }

 private:
  __device__ static void choose(std::uint32_t value, unsigned at, std::uint32_t& x,
                                std::uint32_t& y) {
    x = at == 0 ? value : 0;
    y = at == 1 ? value : 0;
  }

  // Where a code's two positions point to, kWide bits are replaced.
  template <int kWide>
  __device__ static std::uint32_t place(std::uint32_t selectors, std::uint32_t code,
                                        std::uint32_t first, std::uint32_t second) {
    constexpr std::uint32_t kOnes = (1u << kWide) - 1;
    const int a = (code & 3) * kWide, b = (code >> 2 & 3) * kWide;
    selectors = (selectors & ~(kOnes << a)) | first << a;
    return (selectors & ~(kOnes << b)) | second << b;
  }
};

template <int kSize, Pattern kPattern>
__global__ void __launch_bounds__(kThreads, 4)
    decompress(const __grid_constant__ DecompressParams params) {
  using E = Expanded<kSize, kPattern>;
  using Type = typename passes::Integer<kSize>::Type;
  constexpr int kGroup = group(kPattern), kAcross = passes::kRowBytes / kChunk;
  ptx::launch_dependents();
  const passes::Grid grid = decompress_grid(params, kSize);
  ptx::wait_for_prerequisites();
  for (std::int64_t index = blockIdx.x; index < grid.tiles(); index += gridDim.x) {
    const std::uint32_t down = static_cast<std::uint32_t>(index) / grid.across;
    const std::uint32_t across = static_cast<std::uint32_t>(index) - down * grid.across;
    const std::int64_t row =
        (std::int64_t(down) << grid.rows) + threadIdx.x / kAcross * kThreadLines;
    const std::int64_t chunk = std::int64_t(across) * kAcross + threadIdx.x % kAcross;
    const std::int64_t column = chunk * E::kElements, value = chunk * E::kValues;
    const std::int64_t left = params.k - column;
    if (left <= 0) continue;
    const int values = static_cast<int>(
        min(std::int64_t(E::kValues), (left + kGroup - 1) / kGroup * kept(kPattern)));
    const int rows = static_cast<int>(min(std::int64_t(kThreadLines), params.rows - row));
    const auto* from = static_cast<const Type*>(params.values.data) +
                       row * params.values.stride_row + value * params.values.stride_col;
    char* to = static_cast<char*>(params.w) + (row * params.k + column) * kSize;
    const auto codes_of = [&](int i) {
      return codes<E::kBits>(params.metadata, row + i, chunk, values > E::kValues / 2);
    };
    if (params.vector) {
      uint2 pairs[kThreadLines];
      std::uint32_t bits[kThreadLines];
#pragma unroll
      for (int i = 0; i < kThreadLines; ++i) {
        if (i >= rows) continue;
        pairs[i] = *reinterpret_cast<const uint2*>(from + i * params.values.stride_row);
        bits[i] = codes_of(i);
      }
#pragma unroll
      for (int i = 0; i < kThreadLines; ++i) {
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
      passes::gather<kSize>(reinterpret_cast<const char*>(from + i * params.values.stride_row),
                            params.values.stride_col * kSize, 0, values, words);
      const E expanded(words, codes_of(i));
      write_elements<kSize>(to + i * params.k * kSize, expanded.words,
                            static_cast<int>(min(left, std::int64_t(E::kElements))));
    }
  }
}

}  // namespace tcgemm::sparse
