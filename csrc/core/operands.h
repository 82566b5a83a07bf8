// The tensors of a call. kOperands has one row for each: every list of tensors is a loop over it.
//
// A new tensor has an enumerator and a row here. docs/dev/add-an-epilogue-term.md names the other
// files that it touches.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace tcgemm {

enum class Slot : std::uint8_t {
  a,
  b,
  c,
  bias,
  residual,
  scale_a,
  scale_b,
  zero_a,
  zero_b,
  scale_out,
  terms_a,  // split-FP32 terms of operand a; only a problem with A and B swapped has them
  terms_b,
  sparse_a,  // metadata of a 2:4 operand a, whose own tensor has the values
  sparse_b,
  packed_a,  // a packed weight in the place of operand a, which has no memory then
  packed_b,
  offs,  // the ends of the groups of a grouped product (Problem::grouped)
  amax,
  z,  // the argument of the activation, rounded to the dtype of the result
  out,
};

inline constexpr int kSlots = 20;

// The dimension of the GEMM that the rows or columns of a tensor follow. `one`: there is one row
// (column), or the tensor is a vector of opaque bytes.
enum class Axis : std::uint8_t { one, m, n, k };

// The dtypes that a tensor can have.
enum class DTypeRule : std::uint8_t {
  operand,     // those that tensor cores multiply
  addend,      // s32 for an s32 result, else those that the epilogue's type holds exactly
  scale,       // f32, multiplies the accumulator or the result
  zero_point,  // s32, subtracted from 8-bit integers
  bytes,       // u8
  offsets,     // s32; 64-bit integers as their lower halves, two strides apart
  statistic,   // f32, computed from the result
  saved,       // the type of the result, written for the backward
  result
};

// The operand that a tensor belongs to.
enum class Side : std::uint8_t { a, b, both };

struct OperandRow {
  Slot slot;
  const char* name;  // of the argument
  Axis rows, cols;
  DTypeRule dtypes;
  Side side;
  Slot partner;  // the tensor that takes its place if A and B are swapped
  bool batched;  // has a matrix for each index of the batch; else one serves all
  bool written = false;
};

inline constexpr OperandRow kOperands[kSlots] = {
    {Slot::a, "a", Axis::m, Axis::k, DTypeRule::operand, Side::a, Slot::b, true},
    {Slot::b, "b", Axis::k, Axis::n, DTypeRule::operand, Side::b, Slot::a, true},
    {Slot::c, "c", Axis::m, Axis::n, DTypeRule::addend, Side::both, Slot::c, true},
    {Slot::bias, "bias", Axis::m, Axis::n, DTypeRule::addend, Side::both, Slot::bias, true},
    {Slot::residual, "residual", Axis::m, Axis::n, DTypeRule::addend, Side::both, Slot::residual,
     true},
    {Slot::scale_a, "scale_a", Axis::m, Axis::k, DTypeRule::scale, Side::a, Slot::scale_b, true},
    {Slot::scale_b, "scale_b", Axis::k, Axis::n, DTypeRule::scale, Side::b, Slot::scale_a, true},
    {Slot::zero_a, "zero_a", Axis::m, Axis::one, DTypeRule::zero_point, Side::a, Slot::zero_b,
     true},
    {Slot::zero_b, "zero_b", Axis::one, Axis::n, DTypeRule::zero_point, Side::b, Slot::zero_a,
     true},
    {Slot::scale_out, "scale_out", Axis::one, Axis::one, DTypeRule::scale, Side::both,
     Slot::scale_out, false},
    {Slot::terms_a, "terms_a", Axis::one, Axis::one, DTypeRule::bytes, Side::a, Slot::terms_b,
     false},
    {Slot::terms_b, "terms_b", Axis::one, Axis::one, DTypeRule::bytes, Side::b, Slot::terms_a,
     false},
    {Slot::sparse_a, "sparse_a", Axis::one, Axis::one, DTypeRule::bytes, Side::a, Slot::sparse_b,
     false},
    {Slot::sparse_b, "sparse_b", Axis::one, Axis::one, DTypeRule::bytes, Side::b, Slot::sparse_a,
     false},
    {Slot::packed_a, "packed_a", Axis::one, Axis::one, DTypeRule::bytes, Side::a, Slot::packed_b,
     false},
    {Slot::packed_b, "packed_b", Axis::one, Axis::one, DTypeRule::bytes, Side::b, Slot::packed_a,
     false},
    {Slot::offs, "offs", Axis::one, Axis::one, DTypeRule::offsets, Side::both, Slot::offs, false},
    {Slot::amax, "amax", Axis::one, Axis::one, DTypeRule::statistic, Side::both, Slot::amax, false,
     true},
    {Slot::z, "z", Axis::m, Axis::n, DTypeRule::saved, Side::both, Slot::z, true, true},
    {Slot::out, "out", Axis::m, Axis::n, DTypeRule::result, Side::both, Slot::out, true, true},
};

constexpr const OperandRow& operand_row(Slot slot) { return kOperands[static_cast<int>(slot)]; }
constexpr const char* name(Slot slot) { return operand_row(slot).name; }
constexpr Slot partner(Slot slot) { return operand_row(slot).partner; }

// A set of slots. It is iterated in the order of the enumerators.
class SlotSet {
 public:
  class Iterator {
   public:
    constexpr explicit Iterator(std::uint32_t rest) : rest_(rest) {}
    constexpr Slot operator*() const { return static_cast<Slot>(std::countr_zero(rest_)); }
    constexpr Iterator& operator++() {
      rest_ &= rest_ - 1;
      return *this;
    }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    std::uint32_t rest_;
  };

  constexpr SlotSet() = default;
  constexpr SlotSet(std::initializer_list<Slot> slots) {
    for (const Slot slot : slots) insert(slot);
  }

  constexpr void insert(Slot slot) { bits_ |= bit(slot); }
  constexpr void erase(Slot slot) { bits_ &= ~bit(slot); }
  constexpr bool contains(Slot slot) const { return (bits_ & bit(slot)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr SlotSet operator&(SlotSet other) const { return SlotSet(bits_ & other.bits_); }
  constexpr SlotSet operator|(SlotSet other) const { return SlotSet(bits_ | other.bits_); }
  constexpr SlotSet operator-(SlotSet other) const { return SlotSet(bits_ & ~other.bits_); }
  constexpr bool operator==(const SlotSet&) const = default;
  constexpr Iterator begin() const { return Iterator(bits_); }
  constexpr Iterator end() const { return Iterator(0); }

 private:
  static_assert(kSlots <= 32);

  constexpr explicit SlotSet(std::uint32_t bits) : bits_(bits) {}
  static constexpr std::uint32_t bit(Slot slot) { return 1u << static_cast<int>(slot); }

  std::uint32_t bits_ = 0;
};

// The slots whose rows satisfy the predicate.
template <class Predicate>
constexpr SlotSet slots_where(Predicate predicate) {
  SlotSet slots;
  for (const OperandRow& row : kOperands)
    if (predicate(row)) slots.insert(row.slot);
  return slots;
}

constexpr SlotSet slots_with(DTypeRule dtypes) {
  return slots_where([=](const OperandRow& row) { return row.dtypes == dtypes; });
}

inline constexpr SlotSet kAllSlots = slots_where([](const OperandRow&) { return true; });
inline constexpr SlotSet kReadSlots =
    slots_where([](const OperandRow& row) { return !row.written; });
inline constexpr SlotSet kBatchedSlots =
    slots_where([](const OperandRow& row) { return row.batched; });
// Tensors whose rows are rows of the result.
inline constexpr SlotSet kRowsOfResult =
    slots_where([](const OperandRow& row) { return row.rows == Axis::m; });
// b, and what varies along the batch with it.
inline constexpr SlotSet kBatchedWithB =
    kBatchedSlots & slots_where([](const OperandRow& row) { return row.side == Side::b; });
inline constexpr SlotSet kAddends = slots_with(DTypeRule::addend);
inline constexpr SlotSet kScales = slots_with(DTypeRule::scale);
inline constexpr SlotSet kZeroPoints = slots_with(DTypeRule::zero_point);
// Scales of an operand, which the accumulator is multiplied by.
inline constexpr SlotSet kOperandScales =
    kScales & slots_where([](const OperandRow& row) { return row.side != Side::both; });
// Everything between the accumulator and the rounding except for the scales of a and b.
inline constexpr SlotSet kEpilogueTerms =
    kAddends | kZeroPoints | (kScales - kOperandScales) | slots_with(DTypeRule::statistic);

// The tensors of the epilogue in the order in which they apply. alpha stands before the scales, the
// activation before the residual.
inline constexpr Slot kEpilogueOrder[] = {Slot::zero_a,   Slot::zero_b, Slot::scale_a,
                                          Slot::scale_b,  Slot::c,      Slot::bias,
                                          Slot::residual, Slot::amax,   Slot::scale_out};
static_assert([] {
  SlotSet slots;
  for (const Slot slot : kEpilogueOrder) slots.insert(slot);
  return slots == (kEpilogueTerms | kOperandScales);
}());

// One value for each slot.
template <class T>
struct PerSlot {
  T values[kSlots];

  constexpr T& operator[](Slot slot) { return values[static_cast<int>(slot)]; }
  constexpr const T& operator[](Slot slot) const { return values[static_cast<int>(slot)]; }
  constexpr const T* begin() const { return values; }
  constexpr const T* end() const { return values + kSlots; }
};

// Every enumerator has its row, at its own index.
static_assert([] {
  for (int i = 0; i < kSlots; ++i)
    if (kOperands[i].slot != static_cast<Slot>(i)) return false;
  return static_cast<int>(Slot::out) == kSlots - 1;
}());

constexpr Axis swapped_mn(Axis axis) {
  return axis == Axis::m ? Axis::n : axis == Axis::n ? Axis::m : axis;
}

// The partner of the partner is the slot itself. Only a tensor of both sides is its own partner.
static_assert([] {
  for (const OperandRow& row : kOperands) {
    const OperandRow other = operand_row(row.partner);
    if (other.partner != row.slot) return false;
    if ((row.side == Side::both) != (row.partner == row.slot)) return false;
    if (row.side == Side::both) continue;
    if (row.side == other.side) return false;
    if (swapped_mn(row.rows) != other.cols) return false;
    if (swapped_mn(row.cols) != other.rows) return false;
  }
  return true;
}());

static_assert([] {
  for (const OperandRow& row : kOperands)
    for (const OperandRow& other : kOperands)
      if (row.slot != other.slot && std::string_view(row.name) == other.name) return false;
  return true;
}());

}  // namespace tcgemm
