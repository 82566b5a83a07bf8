// Shared by the 2:4 passes: elements as they are stored, their magnitudes as integers, and the loop
// over boxes of a matrix.
//
//   box = kBoxRows x kBoxColumns of w, copied in the order that suits the strides of w. A box holds
//   whole groups, whole blocks of 4 x 4 and whole bytes of metadata, so boxes are independent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/sparse.h"
#include "cpu/dense.h"
#include "cpu/orient.h"

namespace tcgemm::cpu {

// Element types by the rule that orders their magnitudes. The bits of a float without its sign have
// the order of the magnitudes, with NaN above Inf.
template <class B>
struct FloatElement {
  using Bits = B;
  static constexpr std::uint32_t magnitude(Bits x) { return x & (Bits(~Bits{0}) >> 1); }
};

struct SignedElement {
  using Bits = std::uint8_t;
  static constexpr std::uint32_t magnitude(Bits x) { return x & 0x80 ? 256u - x : x; }
};

struct UnsignedElement {
  using Bits = std::uint8_t;
  static constexpr std::uint32_t magnitude(Bits x) { return x; }
};

template <Pattern p>
using PatternConstant = std::integral_constant<Pattern, p>;

// Calls f(an element type, a pattern constant).
template <class F>
void visit(DType type, Pattern pattern, F f) {
  using TwoOfFour = PatternConstant<Pattern::two_of_four>;
  if (pattern == Pattern::one_of_two)
    return f(FloatElement<std::uint32_t>{}, PatternConstant<Pattern::one_of_two>{});
  if (bits(type) == 32) return f(FloatElement<std::uint32_t>{}, TwoOfFour{});
  if (bits(type) == 16) return f(FloatElement<std::uint16_t>{}, TwoOfFour{});
  if (type == DType::s8) return f(SignedElement{}, TwoOfFour{});
  if (type == DType::u8) return f(UnsignedElement{}, TwoOfFour{});
  static_assert(are_all({DType::s8, DType::u8}, is_int8));
  f(FloatElement<std::uint8_t>{}, TwoOfFour{});
}

struct Box {
  std::int64_t row, column, rows, columns;
};

inline constexpr std::int64_t kBoxRows = 32, kBoxColumns = 256;

// Calls f(box) for boxes that cover rows x columns.
template <class F>
void for_each_box(const Parallel& parallel, std::int64_t rows, std::int64_t columns, const F& f) {
  struct Context {
    const F& f;
    std::int64_t rows, columns, boxes_per_row;
  } context{f, rows, columns, (columns + kBoxColumns - 1) / kBoxColumns};
  const auto body = [](std::int64_t first, std::int64_t last, void* context) {
    const auto& [f, rows, columns, boxes_per_row] = *static_cast<Context*>(context);
    for (std::int64_t index = first; index < last; ++index) {
      const std::int64_t row = index / boxes_per_row * kBoxRows;
      const std::int64_t column = index % boxes_per_row * kBoxColumns;
      f(Box{row, column, std::min(kBoxRows, rows - row), std::min(kBoxColumns, columns - column)});
    }
  };
  constexpr std::int64_t grain = 4;
  const std::int64_t boxes = (rows + kBoxRows - 1) / kBoxRows * context.boxes_per_row;
  if (parallel.threads == 1 || boxes <= grain) return body(0, boxes, &context);
  parallel.run(0, boxes, grain, body, &context);
}

// Copies a box of a matrix into rows of `pitch` elements, padded with zeros.
template <class Bits>
void load_box(const Matrix& matrix, const Box& box, std::int64_t pitch, Bits* out) {
  const Bits* from = static_cast<const Bits*>(element(matrix, 0, box.row, box.column));
  for (std::int64_t i = 0; i < box.rows; ++i)
    std::fill(out + i * pitch + box.columns, out + (i + 1) * pitch, Bits{0});
  if (matrix.stride_col == 1) {
    for (std::int64_t i = 0; i < box.rows; ++i)
      std::memcpy(out + i * pitch, from + i * matrix.stride_row, box.columns * sizeof(Bits));
    return;
  }
  for (std::int64_t j = 0; j < box.columns; ++j)
    for (std::int64_t i = 0; i < box.rows; ++i)
      out[i * pitch + j] = from[i * matrix.stride_row + j * matrix.stride_col];
}

// Bit i is 1 if element i of the group is not zero.
template <class Element, Pattern pattern>
unsigned nonzero_mask(const typename Element::Bits* x) {
  unsigned mask = 0;
  for (int i = 0; i < group(pattern); ++i) mask |= unsigned{Element::magnitude(x[i]) != 0} << i;
  return mask;
}

// Bit i is 1 if pruning keeps element i: fewer than kept() elements are larger, or equal and before
// it.
template <class Element, Pattern pattern>
unsigned largest_mask(const typename Element::Bits* x) {
  std::uint32_t magnitude[group(pattern)];
  for (int i = 0; i < group(pattern); ++i) magnitude[i] = Element::magnitude(x[i]);
  unsigned mask = 0;
  for (int i = 0; i < group(pattern); ++i) {
    int larger = 0;
    for (int j = 0; j < group(pattern); ++j)
      if (j != i) larger += j < i ? magnitude[j] >= magnitude[i] : magnitude[j] > magnitude[i];
    mask |= unsigned{larger < kept(pattern)} << i;
  }
  return mask;
}

}  // namespace tcgemm::cpu
