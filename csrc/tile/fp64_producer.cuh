// One operand in a stage, f64 or f32: its layout in shared memory, and the cp.async producer that
// reads any strides and alignment. A stage is 128 bytes of k deep: 16 of f64, 32 of f32.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/dtype.h"
#include "core/layout.h"
#include "core/params.h"
#include "ptx/cp_async.cuh"

namespace tcgemm::tile {

inline constexpr int kPatch = 16;

// The layout of a stage:
//
//   K-major : a row is one m (or n) with the k of the stage      pitch depth + 4 elements
//   MN-major: a row is one k with the m (or n) of the tile       pitch tile + 4 (f64), + 8 (f32)
//
// The padding prevents bank conflicts. f64: tiles are multiples of 16, so both pitches are 4 modulo
// 16. The 16 elements that a half-warp reads together, 4 of k by 4 of m (n), lie in 16 different
// pairs of banks. f32: pitches of 4, and of 8 or 24, modulo 32 do the same for the 4 of k by 8 of m
// (n) of a whole warp. No swizzle avoids conflicts for both majors while the rows keep their
// natural order, and with it the columns of the result.
//
// A warpgroup copies patches of 16 of m (n) x the depth, one after the other along m (n). A thread
// copies 16 bytes where the operand is aligned and contiguous; otherwise one element at a time, in
// passes. Elements outside of the operand become zero without a read.
template <DType kInput, Major kMajor, int kTile>
struct Fp64SmemLayout {
  static_assert(kTile % kPatch == 0);
  static constexpr int kSize = bytes(kInput);
  static constexpr int kDepth = 128 / kSize;
  static constexpr int kPad = kMajor == Major::K ? 4 : kPadBytes / kSize;
  static constexpr int kPitch = (kMajor == Major::K ? kDepth : kTile) + kPad;
  static constexpr int kBytes = (kMajor == Major::K ? kTile : kDepth) * kPitch * kSize;

  // Byte offset of an element in its operand's part of the stage.
  __device__ static constexpr int offset(int mn, int k) {
    return kSize * (kMajor == Major::K ? mn * kPitch + k : k * kPitch + mn);
  }
};

//
// `kPart` is how much of m (n) of the tile a warpgroup copies: all, unless several share the work.
template <DType kInput, Major kMajor, int kTile, int kPart = kTile>
struct Fp64Producer {
  using SmemLayout = Fp64SmemLayout<kInput, kMajor, kTile>;
  static constexpr int kSize = SmemLayout::kSize, kDepth = SmemLayout::kDepth;
  static constexpr int kPatches = kPart / kPatch;
  static_assert(kPart % kPatch == 0);
  static constexpr int kVector = 16 / kSize;                                 // elements in 16 bytes
  static constexpr int kRowElements = kMajor == Major::K ? kDepth : kPatch;  // in a row of a patch
  static constexpr int kPatchRows = kPatch * kDepth / kRowElements;          // rows of a patch
  static constexpr int kPassRows = 128 / kRowElements;  // rows of a pass, an element a thread

  const char* pointer;           // this thread's first element of the next stage
  std::int64_t step_mn, step_k;  // bytes to the next patch and to the next stage
  std::int32_t left_mn, left_k;  // elements from `pointer` to the operand's end
  std::uint32_t smem_offset;     // of `pointer` in a stage
  bool vectorized;
  bool whole;  // vectorized, and all of the part's m (n) exist

  // The part of `source`, seen as mn x k, that begins at row `first` of matrix `batch`.
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
    whole = vectorized && extent_mn - first >= kPart;
    smem_offset = SmemLayout::offset(mn, k);
  }

  __device__ void skip(int k_blocks) {
    pointer += k_blocks * step_k;
    left_k -= k_blocks * kDepth;
  }

  // Copies the part into the stage, from shared address `stage` on, and advances to the next stage.
  __device__ void load(std::uint32_t stage) {
    if (whole && left_k >= (kMajor == Major::K ? kVector : 1))
      load_whole(stage + smem_offset);
    else if (vectorized)
      load_vectors(stage + smem_offset);
    else
      load_elements(stage + smem_offset);
    pointer += step_k;
    left_k -= kDepth;
  }

  // Copies without bounds take a fourth of the instructions. Most k-blocks can be copied so.
  __device__ void load_whole(std::uint32_t shared) const {
    // Vectors along m (n) are contiguous: the step is then an immediate of the instruction.
    const std::int64_t step = kMajor == Major::K ? step_mn : kSize * kPatch;
    const char* from = pointer;
#pragma unroll
    for (int patch = 0; patch < kPatches; ++patch, from += step)
      ptx::cp_async(shared + SmemLayout::offset(patch * kPatch, 0), from);
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

}  // namespace tcgemm::tile
