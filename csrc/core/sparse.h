// Structured sparsity along k: the format of values and metadata, compression and pruning. All
// devices have the same format.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/problem.h"

namespace tcgemm {

// A group is 4 consecutive elements along k in pattern "2:4", of which at most 2 are not zero, and
// 2 elements in pattern "1:2", of which at most 1 is not zero.
//
//   w         a 0 0 b | 0 0 c 0   rows x k; zeros fill the last group
//   values    a b     | 0 c       rows x value_columns, dtype of w: the kept elements in order
//   metadata  0 3     | 0 2       rows x metadata_columns: 2 bits for each value, its position in
//                                 the group; a byte holds four, the first in the lowest bits
//
// Compression keeps the elements of a group that are not zero; NaN is not zero, -0 is zero. If they
// are too few, it adds the first of the other elements; if they are too many, it keeps the first.
// Positions in a group are ascending. Metadata bits after the last value are 0.
//
// Pruning keeps the elements of the largest magnitude in a group, and among equal ones the first.
// The magnitude of a float is its bits without the sign, so NaN is larger than Inf. Pruning writes
// +0 for the other elements and copies the kept ones unchanged.
//
// Transposable pruning ("2:4" only) works on blocks of 4 x 4, filled with zeros at the edges. It
// keeps two elements in each row and each column of a block. There are 90 such choices; it takes
// the one with the largest sum of magnitudes, and among equal ones the first. Choices are in
// the order of numbers of four digits in base 6: a digit is the pair that a row keeps, in the order
// 01 02 03 12 13 23, and the first row has the highest digit. Magnitudes are f32 and at most 2^124;
// NaN counts as 2^124. The sums s of the four rows are added as (s0 + s1) + (s2 + s3); each sum is
// rounded once.

enum class Pattern : std::uint8_t { two_of_four, one_of_two };

inline constexpr int kPatterns = 2;

constexpr const char* name(Pattern pattern) {
  switch (pattern) {
    case Pattern::two_of_four: return "2:4";
    case Pattern::one_of_two: return "1:2";
  }
  return "";
}

// The pattern that mma.sp and wgmma.sp support for this element type.
constexpr Pattern pattern_of(DType type) {
  return bits(type) == 32 ? Pattern::one_of_two : Pattern::two_of_four;
}

constexpr int group(Pattern pattern) {
  switch (pattern) {
    case Pattern::two_of_four: return 4;
    case Pattern::one_of_two: break;
  }
  return 2;
}
constexpr int kept(Pattern pattern) { return group(pattern) / 2; }

constexpr std::int64_t value_columns(std::int64_t k, Pattern pattern) {
  return (k + group(pattern) - 1) / group(pattern) * kept(pattern);
}

// Bytes in a row of metadata.
constexpr std::int64_t metadata_columns(std::int64_t k, Pattern pattern) {
  return (value_columns(k, pattern) + 3) / 4;
}

// The 4 metadata bits of two positions in a group of "2:4", and of one position in a group of
// "1:2", which is the pair 0, 1 or 2, 3 of 16-bit halves.
constexpr unsigned pair_code(int first, int second) { return unsigned(first | second << 2); }
constexpr unsigned half_code(int position) { return position == 0 ? 0x4u : 0xeu; }

// Metadata past the end of w. The hardware needs two different positions; the values there are 0.
inline constexpr std::uint32_t kNoGroups = 0x44444444u;

// mma.sp and wgmma.sp read metadata in 32-bit words, 4 bits for the two ascending positions of a
// group. A position p of "1:2" (f32 operands, multiplied as tf32) becomes the pair 2 p, 2 p + 1 of
// 16-bit halves. Metadata tiles are the metadata of w in the order in which the lanes of a warp,
// lane = 4 g + t, read these words:
//
//   tiles: [k block][64 rows][16 rows][lane][word]       a k block is 128 bytes of a row of w
//
//     16- and 32-bit elements: one word a lane. A k block has two k-steps (index t / 2), and a
//         k-step two halves (index t % 2) of four groups. The low 16 bits of a word are for row
//         2 g, the high 16 bits for row 2 g + 1.
//     8-bit elements: two words a lane, one for each k-step. A k-step has two halves (index t / 2)
//         of eight groups. A word is for row 2 g + t % 2.
//
// Rows g and g + 8 of the instruction are rows 2 g and 2 g + 1 of w: tile::RowOrder::interleaved.
//
// The shape of the metadata tiles of a sparse operand: rows x k elements of `bits` bits.
struct MetadataTiles {
  static constexpr int kRows = 64, kLanes = 128;
  // Allocated blocks of 64 rows after the end: a kernel reads past the end up to the end of its
  // tile.
  static constexpr std::int64_t kSlack = 8;

  std::int64_t rows, k;
  int bits;

  constexpr int block_k() const { return 1024 / bits; }      // elements of w along k in a block
  constexpr int words() const { return bits == 8 ? 2 : 1; }  // 32-bit words a lane
  constexpr std::int64_t blocks_m() const { return (rows + kRows - 1) / kRows; }
  constexpr std::int64_t blocks_k() const { return (k + block_k() - 1) / block_k(); }
  constexpr std::int64_t block_bytes() const { return kLanes * words() * 4; }
  // Without kSlack. The shape may be one tile of a kernel.
  constexpr std::int64_t tile_bytes() const { return blocks_m() * blocks_k() * block_bytes(); }
  constexpr std::int64_t bytes() const { return tile_bytes() + kSlack * block_bytes(); }
};

// The place of 16 metadata bits, four groups: a row of the 16, and the first element along k of the
// k block.
struct HalfWord {
  int row, k;
};

constexpr HalfWord half_word(int bits, int lane, int word, int half) {
  const int g = lane / 4, t = lane % 4;
  if (bits == 8) return {2 * g + t % 2, 64 * word + 32 * (t / 2) + 16 * half};
  const int quarter = 256 / bits;
  return {2 * g + half, 2 * quarter * (t / 2) + quarter * (t % 2)};
}

// w -> values and metadata. `prune` prunes w first, so no group can have too many elements. Without
// it, excess[0] is the number of groups with too many elements that are not zero, and excess[1] is
// the index row * k + column of the first element of the first such group, or -1.
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

// w and metadata -> the elements of w at the positions of the metadata; zeros past the end of w.
struct Gathering {
  Matrix w;         // any strides
  Matrix metadata;  // u8, any strides
  std::int64_t rows = 0, k = 0;
  Pattern pattern = Pattern::two_of_four;
  void* values = nullptr;  // contiguous
};

// w -> pruned w, contiguous.
struct Pruning {
  Matrix w;  // any strides
  std::int64_t rows = 0, k = 0;
  Pattern pattern = Pattern::two_of_four;
  bool transposable = false;
  void* pruned = nullptr;
};

// metadata -> metadata tiles.
struct MetadataTiling {
  Matrix metadata;  // u8, any strides
  std::int64_t rows = 0, k = 0;
  Pattern pattern = Pattern::two_of_four;
  int bits = 16;  // of an element of w: 8, 16, or 32 with "1:2"
  std::uint32_t* tiles = nullptr;
};

}  // namespace tcgemm
