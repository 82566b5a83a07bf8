// The metadata of a 2:4 operand (core/sparse.h): from its tiles in global memory, through the
// pipeline stages, to the registers of mma.sp. docs/dev/kernels/sm80.md says why it is not read
// from global memory.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "core/sparse.h"
#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::sm80 {

// The content of a stage, which is two steps of k:
//
//   stage:  a: tile_m rows of 64 bytes of values | b: as dense | metadata: [16 rows][lane][word]
//
// cp.async copies the metadata with the values, so the pipeline hides its latency as well. The CTA
// has as many threads as a k-block of its tile has lanes of metadata: each thread copies the words
// of one lane, 4 bytes, or 8 for 8-bit types. So no thread idles, and the loop has no branch.
//
// Empty for a dense a. kFragments counts the 16-row fragments of a warp.
template <GemmConfig kConfig, int kFragments>
struct SparseMetadata {
  static constexpr int kWords = bits(kConfig.input) == 8 ? 2 : 1;  // words of a lane
  static constexpr int kBytes = 4 * kWords;
  static_assert(!kConfig.is_sparse() || kConfig.threads() * kBytes == kConfig.metadata_bytes());

  // The words that this thread copies for the next stage.
  const char* pointer;
  std::int64_t stride;                     // bytes to the next k-block
  int remaining;                           // k-blocks
  std::uint32_t load_offset, copy_offset;  // of this thread in a stage's metadata
  // The words of the fragments in both steps. The next stage overwrites words[0] while step 1 is
  // multiplied, so step1_words keeps the words of step 1 until that step loads them.
  std::uint32_t words[2][kFragments], step1_words[kFragments];

  // For the tile whose first row is `row`; the warp begins at row `warp_row` of the tile.
  __device__ SparseMetadata(const SparseParams& params, int row, int warp_row, int k_blocks) {
    if constexpr (kConfig.is_sparse()) {
      // The metadata is padded past the last row and past its end: MetadataTiles::kSlack.
      pointer = reinterpret_cast<const char*>(params.tiles) +
                std::int64_t(row / MetadataTiles::kRows) * MetadataTiles::kLanes * kBytes +
                threadIdx.x * kBytes;
      stride = std::int64_t(params.blocks_m) * MetadataTiles::kLanes * kBytes;
      remaining = k_blocks;
      copy_offset = threadIdx.x * kBytes;
      load_offset = (warp_row / 16 * 32 + threadIdx.x % 32) * kBytes;
    }
  }

  // Copies the metadata of the next k-block to `stage`. Past the last k-block it writes zeros,
  // which are not multiplied.
  __device__ void copy(std::uint32_t stage) {
    if constexpr (kConfig.is_sparse()) {
      ptx::cp_async_element<kBytes>(stage + copy_offset, pointer, remaining > 0);
      pointer += stride;
      --remaining;
    }
  }

  // Loads the words of a step from the metadata at `stage`. Steps must be loaded in order.
  __device__ void load(std::uint32_t stage, int step) {
    if constexpr (kConfig.is_sparse()) {
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        const std::uint32_t address = stage + load_offset + i * 32 * kBytes;
        if (step != 0) {
          words[1][i] = step1_words[i];
        } else if constexpr (kWords == 2) {
          const uint2 pair = ptx::load_shared_pair(address);
          words[0][i] = pair.x, step1_words[i] = pair.y;
        } else {
          words[0][i] = step1_words[i] = ptx::load_shared_b32(address);
        }
      }
    }
  }
};

}  // namespace tcgemm::sm80
