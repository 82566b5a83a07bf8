// Keeps two elements in each row and each column of 4 x 4 blocks, so that the transpose is 2:4 as
// well. It takes the choice with the largest sum out of 90.
#pragma once

#include <cstdint>
#include <utility>

#include "core/dtype.h"
#include "kernels/passes/sparse/group.cuh"
#include "ptx/convert.cuh"
#include "ptx/permute.cuh"

namespace tcgemm::sparse {

inline constexpr int kTransposableBlocks = 3;  // CTAs per SM
inline constexpr int kRowPairs = 6;
inline constexpr int kChoiceCount = 90;

// Returns the columns of a pair, one bit each.
constexpr unsigned pair_columns(int pair) {
  constexpr unsigned columns[kRowPairs] = {0x3, 0x5, 0x9, 0x6, 0xa, 0xc};
  return columns[pair];
}

struct Choice {
  int pairs[4];

  constexpr unsigned columns(int row) const { return pair_columns(pairs[row]); }
  // Each column has two kept elements: the XOR is 0 and the OR is full.
  constexpr bool valid() const {
    return (columns(0) ^ columns(1) ^ columns(2) ^ columns(3)) == 0 &&
           (columns(0) | columns(1) | columns(2) | columns(3)) == 0xf;
  }
  constexpr unsigned mask() const {  // four bits per row
    return columns(0) | columns(1) << 4 | columns(2) << 8 | columns(3) << 12;
  }
};

struct Choices {
  Choice choices[kChoiceCount];
};

constexpr Choices all_choices() {
  Choices result{};
  int count = 0;
  for (int i = 0; i < kRowPairs * kRowPairs * kRowPairs * kRowPairs; ++i) {
    const Choice choice{{i / (kRowPairs * kRowPairs * kRowPairs),
                         i / (kRowPairs * kRowPairs) % kRowPairs, i / kRowPairs % kRowPairs,
                         i % kRowPairs}};
    if (choice.valid()) result.choices[count++] = choice;
  }
  return result;
}

inline constexpr Choices kChoices = all_choices();

// Converts four adjacent elements of a row to magnitudes that compare and add up as f32.
template <DType kType>
__device__ inline void magnitudes(const std::uint32_t (&words)[bytes(kType)], float (&x)[4]) {
  constexpr float kLargest = 0x1p124f;
  if constexpr (kType == DType::f32) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(words[i]);
  } else if constexpr (kType == DType::f16 || kType == DType::bf16) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 pair = ptx::unpack<kType>(words[i]);
      x[2 * i] = pair.x, x[2 * i + 1] = pair.y;
    }
  } else if constexpr (kType == DType::e5m2) {  // e5m2 is the upper byte of an f16
    const float2 low = ptx::unpack_f16(__byte_perm(words[0], 0, 0x1404));
    const float2 high = ptx::unpack_f16(__byte_perm(words[0], 0, 0x3424));
    x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
  } else {
    const std::uint32_t four = is_int8(kType) ? Elements<kType>::magnitudes(words[0]) : words[0];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kType == DType::e4m3) {  // shifted by 20, an f32 that is 2^120 smaller
        const std::uint32_t bits = four >> 8 * i & 0x7f;
        x[i] = bits == 0x7f ? kLargest : __uint_as_float(bits << 20) * 0x1p120f;
      } else {  // 2^23 + x, minus 2^23
        static_assert(is_int8(kType));
        x[i] = __uint_as_float(__byte_perm(four, 0x4b000000u, 0x7440 + i)) - 0x1p23f;
      }
    }
  }
  if constexpr (!is_int8(kType) && kType != DType::e4m3) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = fminf(fabsf(x[i]), kLargest);
  }
}

// Sums of the pairs of two rows.
using Sums = float[kRowPairs][kRowPairs];

struct Best {
  float sum = -1;
  unsigned mask = 0;

  template <Choice kChoice>
  __device__ void update(const Sums& above, const Sums& below) {
    constexpr int a = kChoice.pairs[0], b = kChoice.pairs[1];
    constexpr int c = kChoice.pairs[2], d = kChoice.pairs[3];
    constexpr unsigned kMask = kChoice.mask();
    const float candidate = above[a][b] + below[c][d];
    const bool larger = candidate > sum;
    sum = larger ? candidate : sum;
    mask = larger ? kMask : mask;
  }
};

// The search adds the sums of pairs of rows:
//
//   row 0   pair of 6 \  36 sums
//   row 1   pair of 6 /          \  90 of 36 x 36, in the order of core/sparse.h;
//   row 2   pair of 6 \          /  a larger sum replaces those before
//   row 3   pair of 6 /  36 sums
//
// Each of the 90 costs an addition, a comparison and two selections.
//
// Returns the kept elements of a block, one bit each, four per row.
__device__ inline unsigned best_mask(const float (&x)[4][4]) {
  float sums[4][kRowPairs];
  Sums above, below;
#pragma unroll
  for (int row = 0; row < 4; ++row) {
    const float (&r)[4] = x[row];
    sums[row][0] = r[0] + r[1], sums[row][1] = r[0] + r[2], sums[row][2] = r[0] + r[3];
    sums[row][3] = r[1] + r[2], sums[row][4] = r[1] + r[3], sums[row][5] = r[2] + r[3];
  }
#pragma unroll
  for (int i = 0; i < kRowPairs; ++i)
#pragma unroll
    for (int j = 0; j < kRowPairs; ++j) {
      above[i][j] = sums[0][i] + sums[1][j];
      below[i][j] = sums[2][i] + sums[3][j];
    }
  Best best;
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (best.update<kChoices.choices[kIndex]>(above, below), ...);
  }(std::make_integer_sequence<int, kChoiceCount>());
  return best.mask;
}

// Returns the mask of 32-bit word `word` of row `row`: all ones where an element is kept. The
// multiplication moves each bit to the MSB of its element.
template <int kSize>
__device__ inline std::uint32_t word_mask(unsigned mask, int row, int word) {
  const int first = 4 * row + word * 4 / kSize;
  if constexpr (kSize == 4) return ptx::fill_sign<4>(mask << (31 - first));
  if constexpr (kSize == 2) return ptx::fill_sign<2>((mask >> first & 3) * 0x40008000u);
  return ptx::fill_sign<1>((mask >> first & 15) * 0x10204080u);
}

// Prunes all blocks of four stacked vectors. The loop over them is rolled and rotates their words.
template <DType kType>
__device__ inline void prune_blocks(uint4 (&vectors)[4]) {
  constexpr int kSize = bytes(kType);
  std::uint32_t words[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i][0] = vectors[i].x, words[i][1] = vectors[i].y, words[i][2] = vectors[i].z,
    words[i][3] = vectors[i].w;
#pragma unroll 1
  for (int block = 0; block < 4 / kSize; ++block) {
    float x[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t row[kSize];
#pragma unroll
      for (int j = 0; j < kSize; ++j) row[j] = words[i][j];
      magnitudes<kType>(row, x[i]);
    }
    const unsigned mask = best_mask(x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t rotated[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        rotated[j] = words[i][(j + kSize) % 4];
        if (j >= 4 - kSize) rotated[j] &= word_mask<kSize>(mask, i, (j + kSize) % 4);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) words[i][j] = rotated[j];
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) vectors[i] = {words[i][0], words[i][1], words[i][2], words[i][3]};
}

}  // namespace tcgemm::sparse
