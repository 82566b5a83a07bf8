// Reorders metadata to 32-bit registers in the order of mma.sp and wgmma.sp (core/sparse.h).
//
// Thread indices enumerate the registers of a block of 64 rows, then the blocks along k. So the
// bytes of a row that a CTA reads are adjacent to the bytes of the next CTAs. A register has two
// halves of four groups each.
#include <algorithm>
#include <cstdint>

#include "core/sparse_params.h"
#include "kernels/kernels.h"
#include "ptx/dependent.cuh"

namespace tcgemm::sparse {

constexpr std::int64_t register_count(const MetadataTiles& shape) { return shape.bytes() / 4; }

// Loads four groups of a row from group `first` on. Missing groups are filled from kNoGroups.
template <int kBits>
__device__ inline std::uint32_t load_half(const MetadataTileParams& params, std::int64_t row,
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
  const std::uint32_t present_mask = (1u << 4 * groups) - 1;
  return (half & present_mask) | (kNone & ~present_mask);
}

template <int kBits>
__global__ void __launch_bounds__(kernels::kSparseThreads)
    tile_metadata(const __grid_constant__ MetadataTileParams params) {
  constexpr int kWords = kBits == 8 ? 2 : 1, kBlock = MetadataTiles::kLanes * kWords;
  constexpr int kGroup = kBits == 32 ? 2 : 4;
  const MetadataTiles shape{params.shape.rows, params.shape.k, kBits};
  const std::int64_t count = register_count(shape), blocks_k = shape.blocks_k();
  const std::int64_t blocks = shape.blocks_m() * blocks_k;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t(gridDim.x) * blockDim.x) {
    const std::int64_t block = i / kBlock;
    if (block >= blocks) {
      params.tiles[i] = kNoGroups;
      continue;
    }
    const int index_in_block = static_cast<int>(i % kBlock);
    const int row_group = index_in_block / (32 * kWords);
    const int lane = index_in_block / kWords % 32, word = index_in_block % kWords;
    const std::int64_t block_m = block / blocks_k, block_k = block - block_m * blocks_k;
    std::uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const HalfWord half = half_word(kBits, lane, word, j);
      bits |= load_half<kBits>(params, block_m * MetadataTiles::kRows + 16 * row_group + half.row,
                               (block_k * shape.block_k() + half.k) / kGroup)
              << 16 * j;
    }
    params.tiles[(block_k * shape.blocks_m() + block_m) * kBlock + index_in_block] = bits;
  }
}

}  // namespace tcgemm::sparse

namespace tcgemm::kernels {

const void* tile_metadata(const MetadataTileParams& params) {
  switch (params.shape.bits) {
    case 8: return reinterpret_cast<const void*>(&sparse::tile_metadata<8>);
    case 16: return reinterpret_cast<const void*>(&sparse::tile_metadata<16>);
    default: return reinterpret_cast<const void*>(&sparse::tile_metadata<32>);
  }
}

int tile_metadata_blocks(const MetadataTileParams& params) {
  const std::int64_t blocks =
      (sparse::register_count(params.shape) + kSparseThreads - 1) / kSparseThreads;
  return static_cast<int>(std::min<std::int64_t>(blocks, 2147483647));
}

}  // namespace tcgemm::kernels
