// Shared memory to the fragments of mma.sync: a warp's part of one operand of a stage.
//
// ldmatrix moves 8 x 8 matrices of 16 bits. A row of one is a chunk of 16 bytes, and a lane gets
// four neighbouring bytes of it: two 16-bit values, four of 8 bits or one of tf32, which is what
// mma.sync wants of a K-major operand of any of these types (ptx/mma_sync.cuh), and mma.sp of the
// values of a sparse one, whose rows lie in order (loader.cuh).
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/layout.h"
#include "ptx/ldmatrix.cuh"
#include "ptx/tf32.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::sm80 {

// Which of the four 8x8 matrices of an ldmatrix.x4 holds which half of the patch (16 of mn x 32
// bytes of k), in the order of mma.sync's registers: a wants mn first, two n8 operands b want k
// first.
enum class MatrixOrder { mn_first, k_first };

// Conflict-free: the eight rows of a matrix differ in the swizzle.
template <DType kType, Major kMajor, MatrixOrder kOrder, int kExtent, int kBlockBytes,
          bool kSparse = false>
struct FragmentLoader {
  static_assert(kMajor == Major::K || (bits(kType) == 16 && !kSparse));
  static constexpr int kPatches = kExtent / 16;
  using Fragments = std::uint32_t[kPatches][4];

  // What this lane adds to the start of a stage's operand; the warp begins at row (column) `first`.
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

  // The swizzle only exchanges chunks, so 32 bytes along a row are two chunks: an exclusive or.
  // Sixteen rows are 2048 bytes, or half of that.
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

  // What the loaded fragments still need before they are multiplied.
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
