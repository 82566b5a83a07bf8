// Decides which elements of their groups are kept, for all groups of a vector at once.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/sparse.h"
#include "kernels/passes/transpose.cuh"
#include "kernels/passes/vector_reader.cuh"
#include "ptx/permute.cuh"

namespace tcgemm::sparse {

// The subwords of a vector:
//
//   16 bits   vector     a0 a1 | a2 a3 | b0 b1 | b2 b3      a, b: groups of four, two subwords
//             transposed a0 b0 | a1 b1 | a2 b2 | a3 b3
//   8 bits    four groups, four subwords;  32 bits: not transposed, one subword
//
// SIMD within a register: a predicate is the MSB of a subword, and its lower bits are don't-care.
// For numbers with clear MSBs, x >= y is (x | MSB) - y, and no subword borrows from the next. Four
// elements have a strict order, equal ones by position; an element that is before two others is
// kept.

using passes::kVectorBytes;

template <int kSize>
inline constexpr std::uint32_t kMsbsOfSize = kSize == 1   ? 0x80808080u
                                             : kSize == 2 ? 0x80008000u
                                                          : 0x80000000u;

__device__ inline std::uint32_t majority(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return (a & b) | (c & (a | b));
}

// Compares elements. Floats compare as their bits without the sign.
template <DType kType>
struct Elements {
  static constexpr std::uint32_t kMsbs = kMsbsOfSize<bytes(kType)>;

  // Returns what at_least compares. |-128| = 128 needs all 8 bits.
  __device__ static std::uint32_t magnitudes(std::uint32_t x) {
    if constexpr (kType == DType::s8)
      return (x ^ ptx::fill_sign<1>(x)) + (x >> 7 & 0x01010101u);
    else
      return x;
  }
  __device__ static std::uint32_t at_least(std::uint32_t x, std::uint32_t y) {
    const std::uint32_t difference = (x | kMsbs) - (y & ~kMsbs);
    return is_int8(kType) ? majority(x, ~y, difference) : difference;
  }
  __device__ static std::uint32_t not_zero(std::uint32_t x) {
    const std::uint32_t sum = (x & ~kMsbs) + ~kMsbs;
    return is_int8(kType) ? sum | x : sum;
  }
};

// before[i][j], i < j, says whether element i is before element j.
__device__ inline void keep_two(const std::uint32_t (&before)[4][4], std::uint32_t (&kept)[4]) {
  kept[0] = majority(before[0][1], before[0][2], before[0][3]);
  kept[1] = majority(~before[0][1], before[1][2], before[1][3]);
  kept[2] = majority(~before[0][2], ~before[1][2], before[2][3]);
  kept[3] = majority(~before[0][3], ~before[1][3], ~before[2][3]);
}

// x[i] has element i of all groups of a vector, one group per subword. For "1:2" x is the vector
// itself.
template <DType kType, Pattern kPattern>
struct Groups {
  static constexpr int kSize = bytes(kType);
  static constexpr int kElements = kVectorBytes / kSize;
  static constexpr int kCount = kElements / group(kPattern);
  static constexpr int kCodeBits = 2 * kept(kPattern);  // of one group
  static constexpr bool kPairs = kPattern == Pattern::one_of_two;
  static_assert(!kPairs || kSize == 4);
  using E = Elements<kType>;

  std::uint32_t x[4];

  __device__ explicit Groups(const uint4& vector) : x{vector.x, vector.y, vector.z, vector.w} {
    if constexpr (kSize == 2) {
      x[0] = __byte_perm(vector.x, vector.z, 0x5410),
      x[1] = __byte_perm(vector.x, vector.z, 0x7632);
      x[2] = __byte_perm(vector.y, vector.w, 0x5410),
      x[3] = __byte_perm(vector.y, vector.w, 0x7632);
    } else if constexpr (kSize == 1) {
      passes::transpose_bytes(x);
    }
  }

  // Keeps the largest elements.
  __device__ void keep_largest(std::uint32_t (&kept)[4]) const {
    std::uint32_t m[4], before[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) m[i] = E::magnitudes(x[i]);
    if constexpr (kPairs) {
      kept[0] = E::at_least(m[0], m[1]), kept[1] = ~kept[0];
      kept[2] = E::at_least(m[2], m[3]), kept[3] = ~kept[2];
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = i + 1; j < 4; ++j) before[i][j] = E::at_least(m[i], m[j]);
      keep_two(before, kept);
    }
  }

  // Keeps the elements that are not zero, then the first of the others. Returns a bit for each
  // group that has too many, the first group in bit 0.
  __device__ unsigned keep_not_zero(std::uint32_t (&kept)[4]) const {
    std::uint32_t n[4], before[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) n[i] = E::not_zero(x[i]);
    if constexpr (kPairs) {
      kept[0] = n[0] | ~n[1], kept[1] = ~kept[0];
      kept[2] = n[2] | ~n[3], kept[3] = ~kept[2];
      return (n[0] & n[1]) >> 31 | (n[2] & n[3]) >> 31 << 1;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = i + 1; j < 4; ++j) before[i][j] = n[i] | ~n[j];
      keep_two(before, kept);
      std::uint32_t excess = (n[0] & n[1] & (n[2] | n[3])) | (n[2] & n[3] & (n[0] | n[1]));
      excess = (excess & E::kMsbs) >> (8 * kSize - 1);
      if constexpr (kSize == 1) excess |= excess >> 7 | excess >> 14 | excess >> 21;
      if constexpr (kSize == 2) excess |= excess >> 15;
      return excess & ((1u << kCount) - 1);
    }
  }
};

}  // namespace tcgemm::sparse
