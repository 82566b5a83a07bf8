// One operand in a stage of the ring: where its elements lie, f64 or f32, and how they get there
// from any strides and alignment. A stage has a line of 128 bytes of k: 16 of f64, 32 of f32.
//
//   K-major : a line is one m (or n) with the k of the stage     pitch depth + 4 elements
//   MN-major: a line is one k with the tile's m (or n)           pitch tile + 4 (f64), + 8 (f32)
//
// f64: tiles are multiples of 16, so both pitches are 4 modulo 16: the sixteen elements that half a
// warp reads together, 4 of k by 4 of m (n), are in sixteen different pairs of banks. f32: tiles
// are multiples of 16 too, and pitches 4, and 8 or 24, modulo 32 do the same for the 4 of k by 8 of
// m (n) of a whole warp. No swizzle does that for both, and for lines in their natural order, which
// the result's columns then have too.
//
// A warpgroup copies patches of 16 of m (n) x the depth, one after the other along m (n): 16 bytes
// a thread where the operand lies in aligned words, else an element a thread, in passes. What is
// outside the operand becomes zero without a read.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/dtype.h"
#include "core/layout.h"
#include "core/params.h"
#include "ptx/cp_async.cuh"

namespace tcgemm::sm90 {

inline constexpr int kPatch = 16;

template <DType kInput, Major kMajor, int kTile>
struct Fp64SmemLayout {
  static_assert(kTile % kPatch == 0);
  static constexpr int kSize = bytes(kInput);
  static constexpr int kDepth = 128 / kSize;
  static constexpr int kPad = kMajor == Major::K ? 4 : kPadBytes / kSize;
  static constexpr int kPitch = (kMajor == Major::K ? kDepth : kTile) + kPad;
  static constexpr int kBytes = (kMajor == Major::K ? kTile : kDepth) * kPitch * kSize;

  // Of an element in its operand's part of the stage, in bytes.
  __device__ static constexpr int offset(int mn, int k) {
    return kSize * (kMajor == Major::K ? mn * kPitch + k : k * kPitch + mn);
  }
};

template <DType kInput, Major kMajor, int kTile>
struct Fp64Producer {
  using SmemLayout = Fp64SmemLayout<kInput, kMajor, kTile>;
  static constexpr int kSize = SmemLayout::kSize, kDepth = SmemLayout::kDepth;
  static constexpr int kPatches = kTile / kPatch;
  static constexpr int kVector = 16 / kSize;                                 // elements of a word
  static constexpr int kRowElements = kMajor == Major::K ? kDepth : kPatch;  // of a patch, ..
  static constexpr int kPatchRows = kPatch * kDepth / kRowElements;  // .. and how many it has
  static constexpr int kPassRows = 128 / kRowElements;               // an element a thread

  const char* pointer;           // of this thread's first element in the next stage
  std::int64_t step_mn, step_k;  // bytes to the next patch and to the next stage
  std::int32_t left_mn, left_k;  // elements from there to the operand's end
  std::uint32_t smem_offset;     // of it in a stage
  bool vectorized;

  // For the tile of `source`, seen as mn x k, that begins at row `first` of matrix `batch`.
  __device__ Fp64Producer(const TensorRef& source, std::int64_t stride_mn, std::int64_t stride_k,
                          bool vector, int first, int extent_mn, int extent_k, int batch)
      : vectorized(vector) {
    const int thread = threadIdx.x % 128;
    const int major =
        vectorized ? thread % (kRowElements / kVector) * kVector : thread % kRowElements;
    const int minor = vectorized ? thread / (kRowElements / kVector) : thread / kRowElements;
    const int mn = kMajor == Major::K ? minor : major, k = kMajor == Major::K ? major : minor;
    step_mn = kSize * kPatch * stride_mn;
    step_k = kSize * kDepth * stride_k;
    pointer = static_cast<const char*>(source.data) +
              kSize * (batch * source.stride_batch + (first + std::int64_t(mn)) * stride_mn +
                       k * stride_k);
    left_mn = extent_mn - first - mn;
    left_k = extent_k - k;
    smem_offset = SmemLayout::offset(mn, k);
  }

  // The next stage's part of this operand, at shared address `stage`.
  __device__ void load(std::uint32_t stage) {
    if (vectorized)
      load_vectors(stage + smem_offset);
    else
      load_elements(stage + smem_offset);
    pointer += step_k;
    left_k -= kDepth;
  }

  __device__ void load_vectors(std::uint32_t shared) const {
    const char* from = pointer;
#pragma unroll
    for (int patch = 0; patch < kPatches; ++patch, from += step_mn) {
      const int mn = left_mn - patch * kPatch;
      const int major = kMajor == Major::K ? left_k : mn, minor = kMajor == Major::K ? mn : left_k;
      ptx::cp_async(shared + SmemLayout::offset(patch * kPatch, 0), from,
                    minor > 0 ? kSize * min(max(major, 0), kVector) : 0);
    }
  }

  __device__ void load_elements(std::uint32_t shared) const {
    constexpr int kPasses = kPatchRows / kPassRows;
    constexpr int kPassMn = kMajor == Major::K ? kPassRows : 0, kPassK = kPassRows - kPassMn;
    const std::int64_t step = (kMajor == Major::K ? step_mn : step_k) / kPasses;
    const char* from = pointer;
#pragma unroll
    for (int patch = 0; patch < kPatches; ++patch, from += step_mn) {
      const int mn = left_mn - patch * kPatch;
      const std::uint32_t to = shared + SmemLayout::offset(patch * kPatch, 0);
#pragma unroll
      for (int pass = 0; pass < kPasses; pass += 2) {
        const int row_mn = pass * kPassMn, row_k = pass * kPassK;
        const std::uint32_t row = to + SmemLayout::offset(row_mn, row_k);
        const char* element = from + pass * step;
        ptx::cp_async_element<kSize>(row, element, mn > row_mn && left_k > row_k);
        ptx::cp_async_element<kSize>(row + SmemLayout::offset(kPassMn, kPassK), element + step,
                                     mn > row_mn + kPassMn && left_k > row_k + kPassK);
      }
    }
  }
};

}  // namespace tcgemm::sm90
