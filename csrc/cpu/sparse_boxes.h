// What the passes of structured sparsity share: elements as they are stored, with magnitudes that
// are integers, and the walk over a matrix.
//
//   box = kBoxRows x kBoxColumns of w, copied in the order that suits its strides; a task of its
//   own, since it holds whole groups, whole blocks of 4 x 4 and whole bytes of metadata
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/sparse.h"
#include "cpu/orient.h"
#include "cpu/dense.h"

namespace tcgemm::cpu {

// Elements by the rule that orders their magnitudes. The bits of a float without its sign are in
// the order of the numbers, NaN above Inf.
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

// f(an element, the constant of a pattern).
template <class F>
void visit(DType type, Pattern pattern, F f) {
  using TwoOfFour = PatternConstant<Pattern::two_of_four>;
  if (pattern == Pattern::one_of_two)
    return f(FloatElement<std::uint32_t>{}, PatternConstant<Pattern::one_of_two>{});
  if (bits(type) == 32) return f(FloatElement<std::uint32_t>{}, TwoOfFour{});
  if (bits(type) == 16) return f(FloatElement<std::uint16_t>{}, TwoOfFour{});
  if (type == DType::s8) return f(SignedElement{}, TwoOfFour{});
  if (type == DType::u8) return f(UnsignedElement{}, TwoOfFour{});
  f(FloatElement<std::uint8_t>{}, TwoOfFour{});
}

struct Box {
  std::int64_t row, column, rows, columns;
};

inline constexpr std::int64_t kBoxRows = 32, kBoxColumns = 256;

// f(box) for boxes that cover rows x columns.
template <class F>
void each_box(const Parallel& parallel, std::int64_t rows, std::int64_t columns, const F& f) {
  struct Context {
    const F& f;
    std::int64_t rows, columns, across;
  } context{f, rows, columns, (columns + kBoxColumns - 1) / kBoxColumns};
  const auto body = [](std::int64_t first, std::int64_t last, void* context) {
    const auto& [f, rows, columns, across] = *static_cast<Context*>(context);
    for (std::int64_t index = first; index < last; ++index) {
      const std::int64_t row = index / across * kBoxRows;
      const std::int64_t column = index % across * kBoxColumns;
      f(Box{row, column, std::min(kBoxRows, rows - row), std::min(kBoxColumns, columns - column)});
    }
  };
  constexpr std::int64_t grain = 4;
  const std::int64_t boxes = (rows + kBoxRows - 1) / kBoxRows * context.across;
  if (parallel.threads == 1 || boxes <= grain) return body(0, boxes, &context);
  parallel.run(0, boxes, grain, body, &context);
}

// The box of a matrix, in rows that lie `pitch` apart and are filled up with zeros.
template <class Bits>
void gather(const Matrix& matrix, const Box& box, std::int64_t pitch, Bits* out) {
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

// A bit for each of the group's elements that is not zero.
template <class Element, Pattern pattern>
unsigned not_zero(const typename Element::Bits* x) {
  unsigned mask = 0;
  for (int i = 0; i < group(pattern); ++i) mask |= unsigned{Element::magnitude(x[i]) != 0} << i;
  return mask;
}

// A bit for each that pruning keeps: fewer others are larger, or as large and before it.
template <class Element, Pattern pattern>
unsigned largest(const typename Element::Bits* x) {
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
