// Which elements of their groups are kept, of the groups of a chunk at once:
//
//   16 bits   chunk  a0 a1 | a2 a3 | b0 b1 | b2 b3      a, b: groups of four, two lanes
//             turned a0 b0 | a1 b1 | a2 b2 | a3 b3
//   8 bits    four groups, four lanes;  32 bits: as they are, one lane
//
// A truth about a lane is its top bit; the bits below hold anything. x >= y of numbers without a
// top bit is that of (x with it) - y, so that no lane borrows from the next. Of four elements in a
// strict order, equal ones in that of their positions, those are kept that are before two others.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/sparse.h"
#include "kernels/passes/line.cuh"
#include "kernels/passes/transpose.cuh"
#include "ptx/permute.cuh"

namespace tcgemm::sparse {

using passes::kChunk;

template <int kSize>
inline constexpr std::uint32_t kTops = kSize == 1   ? 0x80808080u
                                       : kSize == 2 ? 0x80008000u
                                                    : 0x80000000u;

__device__ inline std::uint32_t majority(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return (a & b) | (c & (a | b));
}

// Comparisons of elements. Those of floats are of their bits without the sign.
template <DType kType>
struct Elements {
  static constexpr std::uint32_t kTop = kTops<bytes(kType)>;

  // What at_least compares; |-128| = 128 needs all of a lane.
  __device__ static std::uint32_t magnitudes(std::uint32_t x) {
    if constexpr (kType == DType::s8)
      return (x ^ ptx::spread<1>(x)) + (x >> 7 & 0x01010101u);
    else
      return x;
  }
  __device__ static std::uint32_t at_least(std::uint32_t x, std::uint32_t y) {
    const std::uint32_t rest = (x | kTop) - (y & ~kTop);
    return is_int8(kType) ? majority(x, ~y, rest) : rest;
  }
  __device__ static std::uint32_t not_zero(std::uint32_t x) {
    const std::uint32_t rest = (x & ~kTop) + ~kTop;
    return is_int8(kType) ? rest | x : rest;
  }
};

// before[i][j], i < j: is element i before element j?
__device__ inline void keep_two(const std::uint32_t (&before)[4][4], std::uint32_t (&kept)[4]) {
  kept[0] = majority(before[0][1], before[0][2], before[0][3]);
  kept[1] = majority(~before[0][1], before[1][2], before[1][3]);
  kept[2] = majority(~before[0][2], ~before[1][2], before[2][3]);
  kept[3] = majority(~before[0][3], ~before[1][3], ~before[2][3]);
}

// Element i of all groups of a chunk, a group a lane; for "1:2" the elements as they are.
template <DType kType, Pattern kPattern>
struct Groups {
  static constexpr int kSize = bytes(kType);
  static constexpr int kElements = kChunk / kSize;
  static constexpr int kCount = kElements / group(kPattern);
  static constexpr int kCodeBits = 2 * kept(kPattern);  // of a group
  static constexpr bool kPairs = kPattern == Pattern::one_of_two;
  static_assert(!kPairs || kSize == 4);
  using E = Elements<kType>;

  std::uint32_t x[4];

  __device__ explicit Groups(const uint4& chunk) : x{chunk.x, chunk.y, chunk.z, chunk.w} {
    if constexpr (kSize == 2) {
      x[0] = __byte_perm(chunk.x, chunk.z, 0x5410), x[1] = __byte_perm(chunk.x, chunk.z, 0x7632);
      x[2] = __byte_perm(chunk.y, chunk.w, 0x5410), x[3] = __byte_perm(chunk.y, chunk.w, 0x7632);
    } else if constexpr (kSize == 1) {
      passes::turn_bytes(x);
    }
  }

  // The largest ones.
  __device__ void largest(std::uint32_t (&kept)[4]) const {
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

  // Those that are not zero, and the first of the others. Returns a bit for each group that has
  // too many, first group first.
  __device__ unsigned not_zero(std::uint32_t (&kept)[4]) const {
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
      std::uint32_t many = (n[0] & n[1] & (n[2] | n[3])) | (n[2] & n[3] & (n[0] | n[1]));
      many = (many & E::kTop) >> (8 * kSize - 1);
      if constexpr (kSize == 1) many |= many >> 7 | many >> 14 | many >> 21;
      if constexpr (kSize == 2) many |= many >> 15;
      return many & ((1u << kCount) - 1);
    }
  }
};

}  // namespace tcgemm::sparse
