// Loads the fragments of mma.sync from shared memory: a warp's part of one operand of a stage.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/layout.h"
#include "ptx/ldmatrix.cuh"
#include "ptx/tf32.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::sm80 {

// ldmatrix loads 8 x 8 matrices of 16 bits. A matrix row is a chunk of 16 bytes, of which a lane
// gets four adjacent bytes: two 16-bit values, four of 8 bits or one of tf32. That is the fragment
// of a K-major operand of any of these types (ptx/mma_sync.cuh), and of the values of a 2:4
// operand, whose rows producer.cuh stores in fragment order.

// The half of a patch (16 of mn x 32 bytes of k) that each of the four matrices of an ldmatrix.x4
// holds. This follows the order of the mma.sync registers: a has mn first, two n8 fragments of b
// have k first.
enum class MatrixOrder { mn_first, k_first };

// Loads are free of bank conflicts: the swizzle puts the eight rows of a matrix in different banks.
template <DType kType, Major kMajor, MatrixOrder kOrder, int kExtent, int kBlockBytes,
          bool kSparse = false>
struct FragmentLoader {
  static_assert(kMajor == Major::K || (bits(kType) == 16 && !kSparse));
  static constexpr int kPatches = kExtent / 16;
  using Fragments = std::uint32_t[kPatches][4];

  // Offset of this lane in a stage's operand, for a warp that begins at row (column) `first`.
  __device__ static std::uint32_t lane_offset(int first) {
    const int lane = threadIdx.x % 32;
    const int mn_half = kOrder == MatrixOrder::mn_first ? lane / 8 % 2 : lane / 16;
    const int k_half = kOrder == MatrixOrder::mn_first ? lane / 16 : lane / 8 % 2;
    if constexpr (kSparse)
      return tile::swizzle64(first + mn_half * 8 + lane % 8, k_half);
    else if constexpr (kMajor == Major::K)
      return tile::swizzle128(first + mn_half * 8 + lane % 8, k_half);
    else
      return first / kBlock * kBlockBytes +
             tile::swizzle128(k_half * 8 + lane % 8, first % kBlock / 8 + mn_half);
  }

  // Loads step `step` of a stage. The swizzle only permutes chunks, so a step along a row, two
  // chunks, is an exclusive or. Sixteen rows are 2048 bytes, or 1024 for a 2:4 operand.
  __device__ static void load(Fragments& fragments, std::uint32_t start, int step) {
#pragma unroll
    for (int patch = 0; patch < kPatches; ++patch) {
      if constexpr (kMajor == Major::K)
        ptx::ldmatrix_x4<false>(fragments[patch],
                                (start ^ (step << 5)) + patch * (kSparse ? 1024 : 2048));
      else
        ptx::ldmatrix_x4<true>(fragments[patch], (start ^ (patch << 5)) + step * 2048);
    }
  }

  // Rounds f32 values to tf32; other types need nothing.
  __device__ static void round_tf32(Fragments& fragments) {
    if constexpr (kType == DType::tf32) {
#pragma unroll
      for (int patch = 0; patch < kPatches; ++patch)
#pragma unroll
        for (int i = 0; i < 4; ++i) fragments[patch][i] = ptx::round_tf32(fragments[patch][i]);
    }
  }
};

}  // namespace tcgemm::sm80
