// The cp.async producer: copies one operand from global memory into a stage, for any size,
// alignment and strides.
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

// An unsigned integer with the size of an element, for the element-wise path. Sub-byte types
// are copied as bytes, and their strides and extents count bytes.
template <DType kType>
using Element =
    std::conditional_t<bits(kType) <= 8, std::uint8_t,
                       std::conditional_t<bits(kType) == 16, std::uint16_t, std::uint32_t>>;

// A stage holds an operand in blocks of 128-byte rows with the 128-byte swizzle, as for WGMMA:
//
//   K-major : 1 block, a row is one m (or n) with 128 bytes of k          major: k, minor: mn
//   MN-major: tile / 64 blocks of 64 rows, a row is one k with 64 of mn   major: mn, minor: k
//
// Only 16-bit elements can be MN-major, because ldmatrix.trans transposes 16-bit elements. For
// other types a K-major producer gathers an MN-major operand element by element, which transposes
// it.
//
// For a 2:4 operand (core/sparse.h) a row is 64 bytes of values. Every 16 rows have the order of
// mma.sp and its metadata: rows 0, 2, .. 14 and then 1, 3, .. 15 (tile::RowOrder::interleaved). So
// ldmatrix reads contiguous rows.
//
// A thread copies chunks of 16 bytes, and adjacent threads share a row. The threads of a CTA cover
// threads / 8 rows (of 128 bytes) in a pass. A thread copies pass by pass and, within a pass, block
// by block. Elements outside of the operand become zero without a read, so tails and stages past
// the end are no special cases.
template <DType kType, Major kMajor, int kTile, int kThreads, bool kSparse = false>
struct CpAsyncProducer {
  using Element = sm80::Element<kType>;
  static constexpr int kSize = sizeof(Element);
  static constexpr int kChunk = 16 / kSize;  // elements
  static constexpr int kRowBytes = kSparse ? 64 : 128;
  static constexpr int kRowElements = kRowBytes / kSize;
  static_assert(kMajor == Major::K || kRowElements == kBlock);
  static constexpr int kBlocks = kMajor == Major::K ? 1 : kTile / kBlock;
  static constexpr int kRows = kMajor == Major::K ? kTile : kBlock;
  static constexpr int kRowThreads = kRowBytes / 16;
  static constexpr int kPassRows = kThreads / kRowThreads;
  static constexpr int kPasses = kRows / kPassRows;
  static constexpr int kCopies = kBlocks * kPasses;
  static constexpr int kBlockBytes = kRows * kRowBytes;
  static_assert(kRows % kPassRows == 0 && kPassRows % (kSparse ? 16 : 8) == 0);

  const char* pointer;                  // this thread's next chunk in block 0
  std::int64_t stride;                  // bytes between elements of a chunk
  std::int64_t block_step;              // bytes to the chunk in the next block
  std::int64_t pass_step;               // bytes to the chunk in the next pass
  std::int64_t stage_step;              // bytes from the last pass to the first of the next stage
  std::int32_t left_major, left_minor;  // elements from the first chunk to the operand's end
  std::uint32_t offset;                 // of the first chunk in a stage

  // Tile of `source`, seen as mn x k, that begins at row `first` of matrix `batch`.
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
    // The last pass of an MN-major stage ends where the next stage begins.
    stage_step = kMajor == Major::K ? block_step - pass_step * (kPasses - 1) : pass_step;
    pointer = static_cast<const char*>(source.data) + batch * source.stride_batch * kSize +
              chunk * kChunk * major + row * minor + first * (kMajor == Major::K ? minor : major);
    left_major = (kMajor == Major::K ? extent_k : extent_mn - first) - chunk * kChunk;
    left_minor = (kMajor == Major::K ? extent_mn - first : extent_k) - row;
    offset = kSparse ? tile::swizzle64(smem_row, chunk) : tile::swizzle128(smem_row, chunk);
  }

  __device__ static int block(int copy) { return copy % kBlocks; }
  __device__ static int pass(int copy) { return copy / kBlocks; }

  // Elements of copy `copy` inside of the operand: kChunk or more means all, 0 or less means none.
  __device__ int valid(int copy) const {
    const int count = left_major - block(copy) * kRowElements;
    return left_minor > pass(copy) * kPassRows ? count : 0;
  }

  __device__ std::uint32_t address(std::uint32_t stage, int copy) const {
    return stage + offset + block(copy) * kBlockBytes + pass(copy) * kPassRows * kRowBytes;
  }

  // Advances to the next pass, or after the last pass to the next stage, once its blocks are
  // copied.
  __device__ void advance(int copy) {
    if (block(copy) + 1 < kBlocks) return;
    pointer += pass(copy) + 1 < kPasses ? pass_step : stage_step;
    ptx::hide_origin(pointer);
    if (pass(copy) + 1 == kPasses) (kMajor == Major::K ? left_major : left_minor) -= kRowElements;
  }

  // Copies a 16-byte aligned chunk that may be partial.
  __device__ void copy(std::uint32_t stage, int copy) {
    ptx::cp_async(address(stage, copy), pointer + block(copy) * 128,
                  kSize * min(max(valid(copy), 0), kChunk));
    advance(copy);
  }

  // Copies a chunk that is either full or outside of the operand. For unrolled loops.
  __device__ void copy_full(std::uint32_t stage, int copy) {
    ptx::cp_async_if(address(stage, copy), pointer + block(copy) * 128, left_major,
                     block(copy) * kRowElements, left_minor, pass(copy) * kPassRows);
    advance(copy);
  }

  // Loads a chunk of any operand, one element at a time. store() packs and stores it later.
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
