// The metadata of a sparse a (core/sparse.h): from its tiles in memory, through the stages of the
// ring, to the registers of mma.sp.
//
//   stage:  a: tile_m rows of 64 bytes of values | b: as dense | metadata: [16 rows][lane][word]
//
// They come by cp.async with what they belong to, so that the ring hides their latency as well; a
// warp that read its words from global memory would have to hold those of a later k-block in
// registers, and four warps beside each other would each ask for the same ones. The block has as
// many threads as a k-block of the tile has lanes of metadata: each copies a lane's words, 4 bytes,
// or 8 of 8-bit types, which leaves no thread idle and no branch in the loop.
//
// A k-block of the tiles is a stage, and a stage is two steps.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "core/sparse.h"
#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::sm80 {

// Nothing, for a dense a. kFragments: of 16 rows, of a warp.
template <GemmConfig kConfig, int kFragments>
struct SparseMetadata {
  static constexpr int kWords = bits(kConfig.input) == 8 ? 2 : 1;  // of a lane
  static constexpr int kBytes = 4 * kWords;
  static_assert(!kConfig.sparse || kConfig.threads() * kBytes == kConfig.metadata_bytes());

  // Those of the next stage that this thread copies.
  const char* pointer;
  std::int64_t stride;                     // bytes to the next k-block
  int remaining;                           // k-blocks
  std::uint32_t load_offset, copy_offset;  // of this thread, in a stage's metadata
  // Of the fragments in both steps. The next stage is read while the second step is multiplied, and
  // so what came for that one has a place of its own until it is its turn.
  std::uint32_t words[2][kFragments], next_words[kFragments];

  // For the tile whose first row is `row`; the warp's first row is `warp_row` of the tile.
  __device__ SparseMetadata(const SparseParams& params, int row, int warp_row, int k_blocks) {
    if constexpr (kConfig.sparse) {
      // Tiles go on past the last row, and past the last of all: MetadataTiles::kSlack.
      pointer = reinterpret_cast<const char*>(params.tiles) +
                std::int64_t(row / MetadataTiles::kRows) * MetadataTiles::kLanes * kBytes +
                threadIdx.x * kBytes;
      stride = std::int64_t(params.blocks_m) * MetadataTiles::kLanes * kBytes;
      remaining = k_blocks;
      copy_offset = threadIdx.x * kBytes;
      load_offset = (warp_row / 16 * 32 + threadIdx.x % 32) * kBytes;
    }
  }

  // Into the metadata at `stage`. Past the last k-block there is nothing to read, and nobody who
  // multiplies with it.
  __device__ void copy(std::uint32_t stage) {
    if constexpr (kConfig.sparse) {
      ptx::cp_async_element<kBytes>(stage + copy_offset, pointer, remaining > 0);
      pointer += stride;
      --remaining;
    }
  }

  // Those of a step, from the metadata at `stage`: steps come in turn.
  __device__ void load(std::uint32_t stage, int step) {
    if constexpr (kConfig.sparse) {
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        const std::uint32_t address = stage + load_offset + i * 32 * kBytes;
        if (step != 0) {
          words[1][i] = next_words[i];
        } else if constexpr (kWords == 2) {
          const uint2 pair = ptx::load_shared_pair(address);
          words[0][i] = pair.x, next_words[i] = pair.y;
        } else {
          words[0][i] = next_words[i] = ptx::load_shared_word(address);
        }
      }
    }
  }
};

}  // namespace tcgemm::sm80
