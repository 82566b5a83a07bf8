// One f64 operand in a stage of the ring: where its elements lie, and how they get there from any
// strides and alignment.
//
//   K-major : a row is one m (or n) with 16 of k            pitch 16 + 4 elements
//   MN-major: a row is one k with the tile's m (or n)       pitch tile + 4 elements
//
// Tiles are multiples of 16, so both pitches are 4 modulo 16: the sixteen elements that half a warp
// reads together, 4 of k by 4 of m (n), are in sixteen different pairs of banks. No swizzle does
// that for both, and for rows in their natural order, which the result's columns then have too.
//
// A warpgroup copies patches of 16 x 16, one after the other along m (n): 8 threads a row with 16
// bytes each where the operand lies in aligned words, else 16 threads a row with one element each,
// in two halves. What is outside the operand becomes zero without a read.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/layout.h"
#include "core/params.h"
#include "ptx/cp_async.cuh"

namespace tcgemm::sm90 {

inline constexpr int kPatch = 16;

template <Major kMajor, int kTile>
struct OperandF64 {
  static_assert(kTile % kPatch == 0);
  static constexpr int kPitch = (kMajor == Major::K ? kPatch : kTile) + kPadF64;
  static constexpr int kBytes = (kMajor == Major::K ? kTile : kPatch) * kPitch * 8;

  // Of an element in its operand's part of the stage, in bytes.
  __device__ static constexpr int offset(int mn, int k) {
    return 8 * (kMajor == Major::K ? mn * kPitch + k : k * kPitch + mn);
  }
};

template <Major kMajor, int kTile>
struct LoaderF64 {
  using Operand = OperandF64<kMajor, kTile>;
  static constexpr int kPatches = kTile / kPatch;

  const char* pointer;           // of this thread's first element in the next stage
  std::int64_t step_mn, step_k;  // bytes to the next patch and to the next stage
  std::int32_t left_mn, left_k;  // elements from there to the operand's end
  std::uint32_t target;          // of it in a stage
  bool words;

  // For the tile of `source`, seen as mn x k, that begins at row `first` of matrix `batch`.
  __device__ LoaderF64(const Source& source, std::int64_t stride_mn, std::int64_t stride_k,
                       bool vector, int first, int extent_mn, int extent_k, int batch)
      : words(vector) {
    const int thread = threadIdx.x % 128;
    const int major = words ? thread % 8 * 2 : thread % 16;
    const int minor = words ? thread / 8 : thread / 16;
    const int mn = kMajor == Major::K ? minor : major, k = kMajor == Major::K ? major : minor;
    step_mn = 8 * kPatch * stride_mn;
    step_k = 8 * kPatch * stride_k;
    pointer =
        static_cast<const char*>(source.data) +
        8 * (batch * source.stride_batch + (first + std::int64_t(mn)) * stride_mn + k * stride_k);
    left_mn = extent_mn - first - mn;
    left_k = extent_k - k;
    target = Operand::offset(mn, k);
  }

  // The next stage's part of this operand, at shared address `stage`.
  __device__ void load(std::uint32_t stage) {
    if (words)
      load_words(stage + target);
    else
      load_elements(stage + target);
    pointer += step_k;
    left_k -= kPatch;
  }

  __device__ void load_words(std::uint32_t shared) const {
    const char* from = pointer;
#pragma unroll
    for (int patch = 0; patch < kPatches; ++patch, from += step_mn) {
      const int mn = left_mn - patch * kPatch;
      const int major = kMajor == Major::K ? left_k : mn, minor = kMajor == Major::K ? mn : left_k;
      ptx::cp_async(shared + Operand::offset(patch * kPatch, 0), from,
                    minor > 0 ? 8 * min(max(major, 0), 2) : 0);
    }
  }

  __device__ void load_elements(std::uint32_t shared) const {
    constexpr int kHalf = kPatch / 2;
    constexpr int kHalfMn = kMajor == Major::K ? kHalf : 0, kHalfK = kHalf - kHalfMn;
    const std::int64_t half = (kMajor == Major::K ? step_mn : step_k) / 2;
    const char* from = pointer;
#pragma unroll
    for (int patch = 0; patch < kPatches; ++patch, from += step_mn) {
      const int mn = left_mn - patch * kPatch;
      const std::uint32_t to = shared + Operand::offset(patch * kPatch, 0);
      ptx::cp_async_f64(to, from, mn > 0 && left_k > 0);
      ptx::cp_async_f64(to + Operand::offset(kHalfMn, kHalfK), from + half,
                        mn > kHalfMn && left_k > kHalfK);
    }
  }
};

}  // namespace tcgemm::sm90
