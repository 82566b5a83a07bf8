// Global memory to one operand's part of a stage, for any size, alignment and strides.
//
// A stage holds an operand in blocks of 128-byte rows with the 128-byte swizzle, as wgmma's does:
//
//   K-major : 1 block, a row is one m (or n) with 128 bytes of k   major = k,  minor = m (n)
//   MN-major: tile / 64 blocks of 64 rows, a row is one k with 64 of m (or n)   the other way round
//
// MN-major is for 16-bit elements alone: ldmatrix turns nothing else. Single elements are gathered
// with any strides, so a K-major loader also reads what lies MN-major, and turns it on the way.
//
// Of a sparse a (core/sparse.h) a row has 64 bytes, of values, and 16 rows lie in the order in
// which tensor cores take them with its metadata: rows 0, 2, .. 14 and then 1, 3, .. 15
// (tile::RowOrder::interleaved), so that ldmatrix reads them in a line.
//
// Threads share a row, a chunk of 16 bytes each; the block's threads cover threads / 8 rows (of 128
// bytes) in a pass. A thread's copies go pass by pass and, within a pass, block by block. What is
// outside the operand becomes zero without a read: tails and stages past the end are no case of
// their own.
#pragma once

#include <cstdint>
#include <type_traits>

#include "catalog.h"
#include "core/layout.h"
#include "core/params.h"
#include "ptx/cp_async.cuh"
#include "tile/epilogue.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::sm80 {

// What is moved where single elements are: the bits of a value.
template <DType kType>
using Element =
    std::conditional_t<bits(kType) == 8, std::uint8_t,
                       std::conditional_t<bits(kType) == 16, std::uint16_t, std::uint32_t>>;

template <DType kType, Major kMajor, int kTile, int kThreads, bool kSparse = false>
struct CpAsyncProducer {
  using Element = sm80::Element<kType>;
  static constexpr int kSize = sizeof(Element);
  static constexpr int kChunk = 16 / kSize;  // elements
  static constexpr int kRowBytes = kSparse ? 64 : 128;
  static constexpr int kRowElements = kRowBytes / kSize;  // elements of a row
  static_assert(kMajor == Major::K || kRowElements == kBlock);
  static constexpr int kBlocks = kMajor == Major::K ? 1 : kTile / kBlock;
  static constexpr int kRows = kMajor == Major::K ? kTile : kBlock;
  static constexpr int kRowThreads = kRowBytes / 16;
  static constexpr int kPassRows = kThreads / kRowThreads;
  static constexpr int kPasses = kRows / kPassRows;
  static constexpr int kCopies = kBlocks * kPasses;
  static constexpr int kBlockBytes = kRows * kRowBytes;
  static_assert(kRows % kPassRows == 0 && kPassRows % (kSparse ? 16 : 8) == 0);

  const char* pointer;                  // of this thread's next chunk in block 0
  std::int64_t stride;                  // bytes between its elements
  std::int64_t block_step;              // bytes to its chunk in the next block, ..
  std::int64_t pass_step;               // .. in the next pass, ..
  std::int64_t stage_step;              // .. and from the last pass to the first of the next stage
  std::int32_t left_major, left_minor;  // elements from its first chunk to the operand's end
  std::uint32_t offset;                 // of its first chunk in a stage

  // For the tile of `source`, seen as mn x k, that begins at row `first` of matrix `batch`.
  __device__ CpAsyncProducer(const TensorRef& source, std::int64_t stride_mn, std::int64_t stride_k,
                             int first, int extent_mn, int extent_k, int batch) {
    const int chunk = threadIdx.x % kRowThreads, smem_row = threadIdx.x / kRowThreads;
    const int row =
        kSparse ? smem_row / 16 * 16 + tile::row_of<tile::RowOrder::interleaved>(smem_row % 16)
                : smem_row;
    const std::int64_t major = kSize * (kMajor == Major::K ? stride_k : stride_mn);
    const std::int64_t minor = kSize * (kMajor == Major::K ? stride_mn : stride_k);
    stride = major;
    block_step = major * kRowElements;
    pass_step = minor * kPassRows;
    // The passes of an MN-major stage end where the next stage begins.
    stage_step = kMajor == Major::K ? block_step - pass_step * (kPasses - 1) : pass_step;
    pointer = static_cast<const char*>(source.data) + batch * source.stride_batch * kSize +
              chunk * kChunk * major + row * minor + first * (kMajor == Major::K ? minor : major);
    left_major = (kMajor == Major::K ? extent_k : extent_mn - first) - chunk * kChunk;
    left_minor = (kMajor == Major::K ? extent_mn - first : extent_k) - row;
    offset = kSparse ? tile::swizzle64(smem_row, chunk) : tile::swizzle128(smem_row, chunk);
  }

  __device__ static int block(int copy) { return copy % kBlocks; }
  __device__ static int pass(int copy) { return copy / kBlocks; }

  // Elements of the chunk of copy `copy` that exist: all if kChunk or more, none if not positive.
  __device__ int valid(int copy) const {
    const int count = left_major - block(copy) * kRowElements;
    return left_minor > pass(copy) * kPassRows ? count : 0;
  }

  __device__ std::uint32_t address(std::uint32_t stage, int copy) const {
    return stage + offset + block(copy) * kBlockBytes + pass(copy) * kPassRows * kRowBytes;
  }

  // To the next pass, or after the last to the next stage; once all blocks of this one are copied.
  __device__ void advance(int copy) {
    if (block(copy) + 1 < kBlocks) return;
    pointer += pass(copy) + 1 < kPasses ? pass_step : stage_step;
    ptx::hide_origin(pointer);
    if (pass(copy) + 1 == kPasses) (kMajor == Major::K ? left_major : left_minor) -= kRowElements;
  }

  // Chunks of 16 aligned bytes, the last of which may be partial.
  __device__ void copy(std::uint32_t stage, int copy) {
    ptx::cp_async(address(stage, copy), pointer + block(copy) * 128,
                  kSize * min(max(valid(copy), 0), kChunk));
    advance(copy);
  }

  // The same where every chunk is whole, for unrolled loops.
  __device__ void copy_full(std::uint32_t stage, int copy) {
    ptx::cp_async_if(address(stage, copy), pointer + block(copy) * 128, left_major,
                     block(copy) * kRowElements, left_minor, pass(copy) * kPassRows);
    advance(copy);
  }

  // Any operand, one element at a time; put() joins the elements when they have arrived.
  __device__ void load_elements(int copy, Element (&elements)[kChunk]) {
    const int count = valid(copy);
    const char* element = pointer + block(copy) * block_step;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      elements[i] = i < count ? __ldg(reinterpret_cast<const Element*>(element)) : 0;
      element += stride;
    }
    advance(copy);
  }

  __device__ void store(std::uint32_t stage, int copy, const Element (&elements)[kChunk]) const {
    const auto word = [&](int index) {
      constexpr int kPerWord = 4 / kSize;
      std::uint32_t joined = elements[index * kPerWord];
#pragma unroll
      for (int i = 1; i < kPerWord; ++i)
        joined |= std::uint32_t(elements[index * kPerWord + i]) << (8 * kSize * i);
      return joined;
    };
    *static_cast<uint4*>(__cvta_shared_to_generic(address(stage, copy))) = {word(0), word(1),
                                                                            word(2), word(3)};
  }
};

}  // namespace tcgemm::sm80
