// metadata -> tiles: words of 32 bits in the order in which tensor cores take them (core/sparse.h).
//
// Threads count words, those of a block of 64 rows first, then blocks of k, so that what a thread
// reads of a row lies beside what the next blocks read. A word is two halves of four groups each.
#include <algorithm>
#include <cstdint>

#include "core/sparse_params.h"
#include "kernels/kernels.h"
#include "ptx/dependent.cuh"

namespace tcgemm::sparse {

using Tiles = MetadataTiles;

constexpr std::int64_t words_of(const Tiles& shape) { return shape.bytes() / 4; }

// Four groups of a row from group `first` on; those that do not exist are as kNoGroups has them.
template <int kBits>
__device__ inline std::uint32_t half_of(const MetadataTileParams& params, std::int64_t row,
                                        std::int64_t first) {
  constexpr Pattern kPattern = kBits == 32 ? Pattern::one_of_two : Pattern::two_of_four;
  constexpr int kGroupBits = 2 * kept(kPattern);
  constexpr std::uint32_t kNone = kNoGroups & 0xffff;
  const std::int64_t groups = (params.shape.k + group(kPattern) - 1) / group(kPattern) - first;
  if (row >= params.shape.rows || groups <= 0) return kNone;
  const std::uint8_t* from = static_cast<const std::uint8_t*>(params.metadata.data) +
                             row * params.metadata.stride_row +
                             first * kGroupBits / 8 * params.metadata.stride_col;
  std::uint32_t half = *from;
  if constexpr (kGroupBits == 2) {
    std::uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) codes |= half_code(half >> 2 * i & 3) << 4 * i;
    half = codes;
  } else {
    if (groups > 2) half |= from[params.metadata.stride_col] << 8;
  }
  if (groups >= 4) return half;
  const std::uint32_t there = (1u << 4 * groups) - 1;
  return (half & there) | (kNone & ~there);
}

template <int kBits>
__global__ void __launch_bounds__(kernels::kSparseThreads)
    tile(const __grid_constant__ MetadataTileParams params) {
  constexpr int kWords = kBits == 8 ? 2 : 1, kBlock = Tiles::kLanes * kWords;
  constexpr int kGroup = kBits == 32 ? 2 : 4;
  const Tiles shape{params.shape.rows, params.shape.k, kBits};
  const std::int64_t all = words_of(shape), across = shape.blocks_k();
  const std::int64_t blocks = shape.blocks_m() * across;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all;
       i += std::int64_t(gridDim.x) * blockDim.x) {
    const std::int64_t block = i / kBlock;
    if (block >= blocks) {
      params.tiles[i] = kNoGroups;
      continue;
    }
    const int within = static_cast<int>(i % kBlock), sixteen = within / (32 * kWords);
    const int lane = within / kWords % 32, word = within % kWords;
    const std::int64_t down = block / across, right = block - down * across;
    std::uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const HalfWord half = half_word(kBits, lane, word, j);
      bits |= half_of<kBits>(params, down * Tiles::kRows + 16 * sixteen + half.row,
                             (right * shape.depth() + half.k) / kGroup)
              << 16 * j;
    }
    params.tiles[(right * shape.blocks_m() + down) * kBlock + within] = bits;
  }
}

}  // namespace tcgemm::sparse

namespace tcgemm::kernels {

const void* tile_metadata(const MetadataTileParams& params) {
  switch (params.shape.bits) {
    case 8:
      return reinterpret_cast<const void*>(&sparse::tile<8>);
    case 16:
      return reinterpret_cast<const void*>(&sparse::tile<16>);
    default:
      return reinterpret_cast<const void*>(&sparse::tile<32>);
  }
}

int tile_metadata_blocks(const MetadataTileParams& params) {
  const std::int64_t blocks =
      (sparse::words_of(params.shape) + kSparseThreads - 1) / kSparseThreads;
  return static_cast<int>(std::min<std::int64_t>(blocks, 2147483647));
}

}  // namespace tcgemm::kernels
