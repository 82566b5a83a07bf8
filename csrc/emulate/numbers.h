// Operands and accumulators as integers: a value is significand * 2^(exponent - fraction_bits).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tcgemm::emulate {

// The bits of a floating-point format. Subnormal numbers have the exponent `lowest`.
struct Format {
  int exponent_bits;
  int fraction_bits;
  bool has_infinity;
  int ignored_bits = 0;  // low bits of the word that the hardware does not read

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int lowest() const { return 1 - bias(); }
};

// Of a float that has at most 32 bits.
constexpr Format format(DType type) {
  switch (type) {
    case DType::f16: return {5, 10, true};
    case DType::bf16: return {8, 7, true};
    case DType::tf32: return {8, 10, true, 13};
    case DType::e4m3: return {4, 3, false};
    case DType::e5m2: return {5, 2, true};
    case DType::f32:
    case DType::f64:
    case DType::s8:
    case DType::u8:
    case DType::s32:
    case DType::s4:
    case DType::u4:
    case DType::b1: break;
  }
  return {8, 23, true};
}

// A subnormal number has the exponent of the smallest normal number, and its significand has a
// leading zero: the hardware does not normalise operands.
struct Number {
  std::int32_t significand = 0;  // signed
  std::int16_t exponent = 0;
  bool is_infinite = false;  // with the sign of `significand`
  bool is_nan = false;

  constexpr bool is_special() const { return is_infinite || is_nan; }
};

constexpr Number decode(std::uint32_t word, const Format& format) {
  word >>= format.ignored_bits;
  const std::uint32_t fraction = word & ((1u << format.fraction_bits) - 1);
  const std::uint32_t ones = (1u << format.exponent_bits) - 1;
  const std::uint32_t field = word >> format.fraction_bits & ones;
  const bool negative = word >> (format.fraction_bits + format.exponent_bits) & 1;
  Number number;
  if (field == ones && format.has_infinity) {
    number.is_nan = fraction != 0;
    number.is_infinite = fraction == 0;
    number.significand = negative ? -1 : 1;
    return number;
  }
  number.is_nan =
      !format.has_infinity && field == ones && fraction + 1 == 1u << format.fraction_bits;
  number.exponent = std::int16_t(field == 0 ? format.lowest() : int(field) - format.bias());
  const auto magnitude =
      std::int32_t(field == 0 ? fraction : fraction | 1u << format.fraction_bits);
  number.significand = negative ? -magnitude : magnitude;
  return number;
}

// The same value as a number of FP16 with `fraction_bits` of fraction: FP8 that was widened. Only
// what is subnormal in FP16 stays subnormal.
constexpr Number widen(Number number, int fraction_bits) {
  if (number.is_special() || number.significand == 0) return number;
  const auto is_normal = [&] {
    const std::int32_t magnitude =
        number.significand < 0 ? -number.significand : number.significand;
    return magnitude >> fraction_bits != 0;
  };
  while (!is_normal() && number.exponent > format(DType::f16).lowest()) {
    number.significand *= 2;
    --number.exponent;
  }
  return number;
}

inline constexpr std::uint32_t kNanF32 = 0x7FFFFFFF, kInfF32 = 0x7F800000;
inline constexpr std::uint32_t kNanF16 = 0x7FFF, kInfF16 = 0x7C00;

}  // namespace tcgemm::emulate
