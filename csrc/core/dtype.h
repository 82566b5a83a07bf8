// Element types of operands, accumulators and results, with their sizes, classes and names.
//
// The value of an enumerator is a kernel parameter that device code switches on, and an index of
// the tables here. A new dtype of torch's tensors stands before s4, and kTensorDTypes counts it; a
// new sub-byte type goes to the end.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace tcgemm {

enum class DType : std::uint8_t { f16, bf16, f32, f64, tf32, e4m3, e5m2, s8, u8, s32, s4, u4, b1 };

inline constexpr int kDTypes = 13;
// The first ten are types of torch's tensors. The others are sub-byte types: see is_subbyte.
inline constexpr int kTensorDTypes = 10;

// The bits of an element that shares its bytes with no other. The dtypes of tensors have this size
// in memory; so device code asks for theirs. The emulator has such elements of every type.
constexpr int addressable_bits(DType type) {
  switch (type) {
    case DType::f64: return 64;
    case DType::f32:
    case DType::tf32:
    case DType::s32: return 32;
    case DType::f16:
    case DType::bf16: return 16;
    case DType::e4m3:
    case DType::e5m2:
    case DType::s8:
    case DType::u8:
    case DType::s4:
    case DType::u4:
    case DType::b1: break;
  }
  return 8;
}

constexpr int addressable_bytes(DType type) { return addressable_bits(type) / 8; }

// The size in memory.
constexpr int bits(DType type) {
  if (type == DType::b1) return 1;
  return type == DType::s4 || type == DType::u4 ? 4 : addressable_bits(type);
}

// Several elements that follow each other along k share a byte, the first in its lowest bits.
constexpr bool is_subbyte(DType type) { return bits(type) < 8; }

// The size of an element, whose type must not be sub-byte.
constexpr int bytes(DType type) { return bits(type) / 8; }

// The bytes of so many elements that follow each other. The last byte may be partly used.
constexpr std::int64_t bytes_of(std::int64_t elements, DType type) {
  return (elements * bits(type) + 7) / 8;
}

// So many elements along k in memory: elements, or bytes if the type is sub-byte.
constexpr std::int64_t stored_extent(std::int64_t elements, DType type) {
  return is_subbyte(type) ? bytes_of(elements, type) : elements;
}

constexpr bool is_16bit(DType type) { return bits(type) == 16; }
constexpr bool is_fp8(DType type) { return type == DType::e4m3 || type == DType::e5m2; }
constexpr bool is_int8(DType type) { return type == DType::s8 || type == DType::u8; }
constexpr bool is_int4(DType type) { return type == DType::s4 || type == DType::u4; }
constexpr bool is_integer(DType type) {
  return is_int8(type) || is_int4(type) || type == DType::b1 || type == DType::s32;
}

// Is each type of the class one of `types`? The last branch of a choice at run time takes every
// type that is left: a static_assert of this beside the branches fails when a type has none.
constexpr bool are_all(std::initializer_list<DType> types, bool (*is_in_class)(DType)) {
  for (int i = 0; i < kDTypes; ++i) {
    bool is_listed = !is_in_class(DType(i));
    for (const DType type : types) is_listed = is_listed || type == DType(i);
    if (!is_listed) return false;
  }
  return true;
}

constexpr const char* name(DType type) {
  constexpr const char* names[kDTypes] = {"f16", "bf16", "f32", "f64", "tf32", "e4m3", "e5m2",
                                          "s8",  "u8",   "s32", "s4",  "u4",   "b1"};
  return names[static_cast<int>(type)];
}

}  // namespace tcgemm
