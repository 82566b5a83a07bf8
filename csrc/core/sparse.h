// Structured sparsity along k, and its format, the same on every device (docs: README).
//
//   pattern "2:4": of four neighbours at most two are not zero;  "1:2": of two at most one
//
//   w          a 0 0 b | 0 0 c 0      rows x k, the last group filled up with zeros
//   values     a b     | 0 c          rows x value_columns: the kept ones in their order, w's dtype
//   metadata   0 3     | 0 2          2 bits each: where in its group a value stood. Four in a
//                                     byte, the first in the lowest bits: rows x metadata_columns
//
// What is kept of a group: elements that are not zero (NaN is not, -0 is), then the first of the
// others until there are enough; of too many the first. Positions in a group rise. Bits beside the
// last value are 0.
//
// Pruning keeps the largest magnitudes, the first of equal ones; those of floats are compared as
// their bits without the sign, so that NaN is larger than Inf. It changes nothing but what it makes
// +0.
//
// Transposable pruning of "2:4" keeps two in each row and each column of blocks of 4 x 4 (edges
// filled up with zeros), of all 90 such choices the one of the largest sum of magnitudes, the first
// of equal ones. Choices count up as numbers whose digits in base 6 are the pairs that rows keep,
// the first row's the highest digit; pairs in the order 01 02 03 12 13 23. Magnitudes are f32, at
// most 2^124, which NaN counts as; the four sums of rows s are added as (s0 + s1) + (s2 + s3), each
// sum rounded once.
//
// Tensor cores take the metadata of 16 rows and some k as words of 32 bits, four bits for each pair
// of positions, ascending. A kept position p of "1:2" (f32, multiplied as tf32) is the pair 2 p,
// 2 p + 1 of 16-bit halves.
//
//   tiles: [k block][64 rows][16 rows][lane = 4 g + t][word]      k block: 128 bytes of a row of w
//     16 and 32 bits: one word. A k block is two steps (t / 2), a step two halves (t % 2) of four
//             groups each: of row 2 g in the low, of row 2 g + 1 in the high half of the word
//     8 bits: two words, one a step; a step is two halves (t / 2) of eight groups, of row
//             2 g + t % 2
//
// The instruction's rows g and g + 8 are the neighbours 2 g and 2 g + 1 of w (tile::RowOrder).
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/problem.h"

namespace tcgemm {

enum class Pattern : std::uint8_t { two_of_four, one_of_two };

inline constexpr int kPatterns = 2;

constexpr const char* name(Pattern pattern) {
  return pattern == Pattern::two_of_four ? "2:4" : "1:2";
}

// What tensor cores take of operands of this type.
constexpr Pattern pattern_of(DType type) {
  return bits(type) == 32 ? Pattern::one_of_two : Pattern::two_of_four;
}

constexpr int group(Pattern pattern) { return pattern == Pattern::two_of_four ? 4 : 2; }
constexpr int kept(Pattern pattern) { return group(pattern) / 2; }

constexpr std::int64_t value_columns(std::int64_t k, Pattern pattern) {
  return (k + group(pattern) - 1) / group(pattern) * kept(pattern);
}

// Bytes of a row of metadata.
constexpr std::int64_t metadata_columns(std::int64_t k, Pattern pattern) {
  return (value_columns(k, pattern) + 3) / 4;
}

// The four bits of a pair of positions; 16-bit halves of a value of "1:2".
constexpr unsigned pair_code(int first, int second) { return unsigned(first | second << 2); }
constexpr unsigned half_code(int position) { return position == 0 ? 0x4u : 0xeu; }

// Where there is no group: a pair that tensor cores take, of values that are zero.
inline constexpr std::uint32_t kNoGroups = 0x44444444u;

// The tiles of rows x k of elements of so many bits.
struct MetadataTiles {
  static constexpr int kRows = 64, kLanes = 128;
  // A kernel may read so many blocks of 64 rows past the end, as far as its tile reaches.
  static constexpr std::int64_t kSlack = 8;

  std::int64_t rows, k;
  int bits;

  constexpr int depth() const { return 1024 / bits; }  // of w, in a block
  constexpr int words() const { return bits == 8 ? 2 : 1; }
  constexpr std::int64_t blocks_m() const { return (rows + kRows - 1) / kRows; }
  constexpr std::int64_t blocks_k() const { return (k + depth() - 1) / depth(); }
  constexpr std::int64_t block_bytes() const { return kLanes * words() * 4; }
  // Of a kernel's tile, or of all.
  constexpr std::int64_t tile_bytes() const { return blocks_m() * blocks_k() * block_bytes(); }
  constexpr std::int64_t bytes() const { return tile_bytes() + kSlack * block_bytes(); }
};

// Half a word is four pairs: of a row of the 16, from element `k` of the block on.
struct HalfWord {
  int row, k;
};

constexpr HalfWord half_word(int bits, int lane, int word, int half) {
  const int g = lane / 4, t = lane % 4;
  if (bits == 8) return {2 * g + t % 2, 64 * word + 32 * (t / 2) + 16 * half};
  const int quarter = 256 / bits;
  return {2 * g + half, 2 * quarter * (t / 2) + quarter * (t % 2)};
}

// w -> values and metadata. With `prune` the largest of each group are kept; without, excess[0] is
// how many groups have too many that are not zero, and excess[1] the index row * k + column where
// the first of these begins, or -1. Of pruned ones there are none.
struct Compression {
  Matrix w;  // any strides
  std::int64_t rows = 0, k = 0;
  Pattern pattern = Pattern::two_of_four;
  bool prune = false;
  void* values = nullptr;            // contiguous
  std::uint8_t* metadata = nullptr;  // contiguous
  std::int64_t* excess = nullptr;
};

// values and metadata -> w, contiguous.
struct Decompression {
  Matrix values;    // any strides
  Matrix metadata;  // u8, any strides
  std::int64_t rows = 0, k = 0;
  Pattern pattern = Pattern::two_of_four;
  void* w = nullptr;
};

// w and metadata -> the values that stand there; where w ends, zeros.
struct Gathering {
  Matrix w;         // any strides
  Matrix metadata;  // u8, any strides
  std::int64_t rows = 0, k = 0;
  Pattern pattern = Pattern::two_of_four;
  void* values = nullptr;  // contiguous
};

// w -> w with zeros, contiguous.
struct Pruning {
  Matrix w;  // any strides
  std::int64_t rows = 0, k = 0;
  Pattern pattern = Pattern::two_of_four;
  bool transposable = false;
  void* pruned = nullptr;
};

// metadata -> tiles.
struct MetadataTiling {
  Matrix metadata;  // u8, any strides
  std::int64_t rows = 0, k = 0;
  Pattern pattern = Pattern::two_of_four;
  int bits = 16;  // of an element: 8, 16, or 32 with "1:2"
  std::uint32_t* tiles = nullptr;
};

}  // namespace tcgemm
