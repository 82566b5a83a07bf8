// A weight of 4 or 8 bits in the order in which the kernels read it: packed_b of packed_mm.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/integer.h"

namespace tcgemm {

// The codes of a packed weight. int4: 0 to 15, of which `zeros` says what the value 0 is. table4:
// an index of a table of 16 values. int8 and e4m3: the value.
enum class WeightFormat : std::uint8_t { none, int4, table4, int8, e4m3 };

// A choice whose last branch takes several of them, or the rest, asserts this number.
inline constexpr int kWeightFormats = 5;

constexpr const char* name(WeightFormat format) {
  switch (format) {
    case WeightFormat::none: return "none";
    case WeightFormat::int4: return "int4";
    case WeightFormat::table4: return "table4";
    case WeightFormat::int8: return "int8";
    case WeightFormat::e4m3: return "e4m3";
  }
  return "";
}

constexpr int bits(WeightFormat format) {
  static_assert(kWeightFormats == 5);
  return format == WeightFormat::none                                   ? 0
         : format == WeightFormat::int8 || format == WeightFormat::e4m3 ? 8
                                                                        : 4;
}

// none    (code - 8) * scale for int4, value * scale for the others
// points  (code - point) * scale          offsets  (code - 8) * scale + offset         int4 alone
enum class WeightZeros : std::uint8_t { none, points, offsets };

inline constexpr int kWeightZeros = 3;

constexpr const char* name(WeightZeros zeros) {
  switch (zeros) {
    case WeightZeros::none: return "none";
    case WeightZeros::points: return "points";
    case WeightZeros::offsets: return "offsets";
  }
  return "";
}

// A packed weight W (N, K) as kernels know it. One scale serves `group_size` elements along k, or
// the row if it is 0.
struct PackedWeight {
  WeightFormat format = WeightFormat::none;
  WeightZeros zeros = WeightZeros::none;
  std::int32_t group_size = 0;

  bool operator==(const PackedWeight&) const = default;
};

// The bytes of a packed weight:
//
//   header   256 bytes: the table of table4, 16 f32
//   codes    [128 rows of W][64 of k][16 rows][lane] 16 bytes; with 8 bits [16 rows][half][lane]
//   scales   f32 [128 rows of W][group][scale; point or offset][row]
//
// A lane, 4 g + t, has the elements that it has in fragments of a (16 rows x 16 of k) of mma.sync
// and wgmma. Rows g and g + 8 of a fragment are rows 2 g and 2 g + 1 of the 16:
// tile::RowOrder::interleaved. A register i of a fragment has the elements of row 2 g + i % 2 with
// k = 2 t + 8 (i / 2) and one more, low and high. A vector of 16 bytes has 4 words:
//
//   int4     word j: step j of 16 of k; low element of register i in bits 4 i, high in 16 + 4 i
//   table4   word j: step j; register i is byte i, the high element in its high bits
//   8 bits   words 2 j and 2 j + 1 of a half: its step j; registers 0, 1 and 2, 3: bytes low, high
//
// Elements outside of W have code 8 (int4) or 0, and their scales are 0.
struct PackedLayout {
  static constexpr int kRows = 128, kDepth = 64;
  static constexpr int kSteps = kDepth / 16;  // of mma.sync and wgmma
  static constexpr std::int64_t kHeaderBytes = 256;

  std::int64_t n, k;
  PackedWeight weight;

  constexpr std::int64_t blocks_n() const { return ceil_div(n, kRows); }
  constexpr std::int64_t blocks_k() const { return ceil_div(k, kDepth); }
  // The bytes of 128 rows and 64 of k.
  constexpr std::int64_t block_bytes() const { return kRows * kDepth * bits(weight.format) / 8; }
  constexpr std::int64_t codes_bytes() const { return blocks_n() * blocks_k() * block_bytes(); }
  // Groups that a block of k has: 1, or more if they are smaller than it.
  constexpr int groups_in_block() const {
    return weight.group_size == 0 || weight.group_size >= kDepth ? 1 : kDepth / weight.group_size;
  }
  // Blocks of k that a group has.
  constexpr std::int64_t blocks_in_group() const {
    return weight.group_size == 0        ? blocks_k()
           : weight.group_size <= kDepth ? 1
                                         : weight.group_size / kDepth;
  }
  constexpr std::int64_t groups() const {
    return blocks_k() == 0 ? 0 : ceil_div(blocks_k(), blocks_in_group()) * groups_in_block();
  }
  // Vectors of a group: the scales, and the points or offsets.
  constexpr int vectors() const { return weight.zeros == WeightZeros::none ? 1 : 2; }
  constexpr std::int64_t scales_bytes() const {
    return blocks_n() * groups() * vectors() * kRows * 4;
  }
  constexpr std::int64_t scales_offset() const { return kHeaderBytes + codes_bytes(); }
  constexpr std::int64_t bytes() const { return scales_offset() + scales_bytes(); }
};

// The group sizes that have a layout: parts of a block of k, or whole blocks.
constexpr bool is_group_size(std::int64_t size) {
  return size == 0 || size == 16 || size == 32 || (size > 0 && size % PackedLayout::kDepth == 0);
}

}  // namespace tcgemm
