// Reads 16-byte vectors of a strided operand.
#pragma once

#include <cstdint>

#include "core/problem.h"
#include "ptx/load.cuh"

namespace tcgemm::passes {

// As an int: index arithmetic with it stays in 32 bits.
inline constexpr int kVectorBytes = static_cast<int>(tcgemm::kVectorBytes);

template <int kSize>
struct UnsignedOfSize;
template <>
struct UnsignedOfSize<1> {
  using Type = std::uint8_t;
};
template <>
struct UnsignedOfSize<2> {
  using Type = std::uint16_t;
};
template <>
struct UnsignedOfSize<4> {
  using Type = std::uint32_t;
};
template <>
struct UnsignedOfSize<8> {
  using Type = std::uint64_t;
};

// A leading-dimension row (ld_row) is a row of a K-major operand or a column of an MN-major one.
// Its elements are contiguous unless neither stride is 1. A contiguous row may start at any byte:
//
//              vector 0        vector 1        vector 2
//            |---------------|---------------|---------------|   `start` is where vector 0 begins
//                 begin >xxxxxxxxxxxxxxxxxxxxxxxxxxx< end        bytes that exist
//      |               |               |               |         16-byte aligned memory
//
// One or two aligned loads cover a vector. A vector whose aligned loads leave the row is gathered
// element by element, so that no byte outside of the operand is read.
struct LdRow {
  const char* start;
  int begin, end;

  __device__ unsigned shift() const {
    return reinterpret_cast<std::uintptr_t>(start) % kVectorBytes;
  }

  // Returns whether the aligned loads of vector `index` stay inside the row.
  __device__ bool inside(int index) const {
    const int first = index * kVectorBytes - static_cast<int>(shift());
    return first >= begin && first + (shift() == 0 ? kVectorBytes : 2 * kVectorBytes) <= end;
  }
};

// The aligned loads of one vector. `high` is loaded only if the row is misaligned.
struct AlignedVectors {
  uint4 low, high;

  __device__ AlignedVectors() : low{}, high{} {}
  __device__ AlignedVectors(const LdRow& ld_row, int index, std::uint64_t policy)
      : AlignedVectors() {
    const char* aligned = ld_row.start - ld_row.shift() + index * kVectorBytes;
    low = ptx::load(aligned, policy);
    if (ld_row.shift() != 0) high = ptx::load(aligned + kVectorBytes, policy);
  }

  // Returns the 16 bytes from byte `shift` of `low` on; `shift` is a multiple of kSize.
  template <int kSize>
  __device__ uint4 extract(unsigned shift) const {
    std::uint32_t x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) x[i] = shift & 8 ? x[i + 2] : x[i];
    if constexpr (kSize <= 4) {
#pragma unroll
      for (int i = 0; i < 5; ++i) x[i] = shift & 4 ? x[i + 1] : x[i];
    }
    if constexpr (kSize <= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = __funnelshift_r(x[i], x[i + 1], shift % 4 * 8);
    }
    return {x[0], x[1], x[2], x[3]};
  }
};

// Loads elements `first` to `last` - 1, `stride` bytes apart, into kWords 32-bit words. The words
// of the other elements are zero.
template <int kSize, int kWords>
__device__ inline void gather_elements(const char* address, std::int64_t stride, int first,
                                       int last, std::uint32_t (&words)[kWords]) {
  using Type = typename UnsignedOfSize<kSize>::Type;
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = 0;
#pragma unroll
  for (int i = 0; i < kWords * 4 / kSize; ++i) {
    const bool exists = first <= i && i < last;
    const Type element = exists ? *reinterpret_cast<const Type*>(address + i * stride) : Type{};
    words[i * kSize / 4] |= static_cast<std::uint32_t>(element) << i * kSize % 4 * 8;
    if constexpr (kSize == 8) words[2 * i + 1] = static_cast<std::uint32_t>(element >> 32);
  }
}

// Gathers one vector. Elements of 1 and 2 bytes are gathered one 32-bit word at a time: their
// addresses all at once would need half of the registers.
template <int kSize>
__device__ inline uint4 gather_elements(const char* address, std::int64_t stride, int first,
                                        int last) {
  constexpr int kElements = 4 / kSize;  // in a 32-bit word
  std::uint32_t x[4] = {};
  if constexpr (kSize >= 4) {
    gather_elements<kSize>(address, stride, first, last, x);
  } else {
#pragma unroll 1
    for (int i = 0; i < 4; ++i, address += kElements * stride) {
      std::uint32_t word[1];
      gather_elements<kSize>(address, stride, first - i * kElements, last - i * kElements, word);
      x[0] = x[1], x[1] = x[2], x[2] = x[3], x[3] = word[0];
    }
  }
  return {x[0], x[1], x[2], x[3]};
}

inline constexpr int kRowsPerThread = 4;  // each thread reads that many vectors at once

// Reads leading-dimension rows of kSize-byte elements, or, with kSegment > 0, consecutive segments
// of kSegment bytes of a single row.
template <int kSize, int kSegment = 0>
struct VectorReader {
  const char* source;
  std::int64_t stride_ld_row, stride_element;  // in bytes
  int ld_rows;
  int begin, end;   // bytes of a row that exist, from `source`, as if it were contiguous
  bool contiguous;  // the elements of a row are contiguous
  bool aligned;     // contiguous, and every vector is 16-byte aligned
  bool inside;      // all rows exist, and all aligned loads stay inside them

  // Sets `contiguous`, `aligned` and `inside` for a read of `count` rows or segments of `length`
  // bytes.
  __device__ void examine(int count, int length) {
    const auto address = reinterpret_cast<std::uintptr_t>(source);
    contiguous = stride_element == kSize;
    aligned = contiguous && (address | (kSegment ? 0 : stride_ld_row)) % kVectorBytes == 0;
    inside = contiguous && ld_rows == count && begin <= (aligned ? 0 : -kVectorBytes) &&
             end >= length + (aligned ? 0 : kVectorBytes);
  }

  // Reads vector `column` of ld_rows first to first + 3. Elements that do not exist are zero. The
  // loop over vectors that are gathered is rolled: unrolled it spills registers.
  __device__ void read(int first, int column, std::uint64_t policy,
                       uint4 (&vectors)[kRowsPerThread]) const {
    AlignedVectors aligned_loads[kRowsPerThread];
    unsigned loaded = 0;
    if (inside) {
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i)
        aligned_loads[i] = AlignedVectors(ld_row(first + i), column, policy);
      loaded = (1u << kRowsPerThread) - 1;
    } else if (contiguous) {
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) {
        const LdRow ld_row = this->ld_row(first + i);
        const bool exists = first + i < ld_rows && column * kVectorBytes < ld_row.end;
        if (exists && !ld_row.inside(column)) continue;
        if (exists) aligned_loads[i] = AlignedVectors(ld_row, column, policy);
        loaded |= 1u << i;
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i)
      vectors[i] =
          aligned
              ? aligned_loads[i].low
              : aligned_loads[i].template extract<kSize>(ld_row(kSegment ? 0 : first + i).shift());
    if (loaded == (1u << kRowsPerThread) - 1) return;
    const char* address =
        source + first * stride_ld_row + column * (kVectorBytes / kSize) * stride_element;
#pragma unroll 1
    for (int i = 0; i < kRowsPerThread; ++i, address += stride_ld_row) {
      uint4 vector = vectors[0];
      if ((loaded >> i & 1) == 0) {
        const LdRow ld_row = this->ld_row(first + i);
        const int left = (ld_row.end - column * kVectorBytes) / kSize;
        const int from = kSegment ? (ld_row.begin - column * kVectorBytes) / kSize : 0;
        vector =
            gather_elements<kSize>(address, stride_element, from, first + i < ld_rows ? left : 0);
      }
#pragma unroll
      for (int j = 1; j < kRowsPerThread; ++j) vectors[j - 1] = vectors[j];
      vectors[kRowsPerThread - 1] = vector;
    }
  }

 private:
  // The elements of segments are contiguous wherever aligned loads read them.
  __device__ LdRow ld_row(int index) const {
    return {source + (kSegment ? index * kSegment : index * stride_ld_row),
            begin - index * kSegment, end - index * kSegment};
  }
};

}  // namespace tcgemm::passes
