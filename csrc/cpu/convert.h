// Conversions between f32 and narrow types in integer arithmetic: the definition of each rounding.
// The vector versions in rows.h and f16c.h give the same bits.
//
// The templates convert one value (Bits: uint32_t, Number: float) or a vector of four. They are
// always inlined: the linker could use an instance of one instruction set in the code of another.
#pragma once

#include <bit>
#include <cstdint>

namespace tcgemm::cpu {

struct Half {
  std::uint16_t bits;
};

struct BFloat16 {
  std::uint16_t bits;
};

// (-1)^s 2^(e - bias) 1.m, subnormal if e is 0. With infinities, the largest e means Inf or NaN;
// without, a code of all ones is NaN and there is no Inf.
template <int kMantissaBits, int kBias, bool kInfinities>
struct Float8 {
  static constexpr int kShift = 23 - kMantissaBits;  // moves e and m to their bits of an f32
  static constexpr std::uint32_t kRebias = std::uint32_t{127 - kBias} << 23;
  static constexpr std::uint32_t kNormal = 1u << kMantissaBits;  // the smallest normal number
  static constexpr std::uint32_t kLargest = kInfinities ? 0x7f - kNormal : 0x7e;
  // Bits of the f32 number whose last bit is worth the smallest subnormal. A sum with it rounds to
  // a multiple of this subnormal.
  static constexpr std::uint32_t kSubnormalUnit = std::uint32_t{128 - kBias + kShift} << 23;

  std::uint8_t bits;
};

using E4M3 = Float8<3, 7, false>;
using E5M2 = Float8<2, 15, true>;

// An f32 number in memory that a GEMM reads with fewer mantissa bits.
template <int kDropped>
struct Rounded {
  float value;
};

using Tf32 = Rounded<13>;
using AsBFloat16 = Rounded<16>;

inline constexpr std::uint32_t kNan32 = 0x7fc00000;
inline constexpr std::uint64_t kNan64 = 0x7ff8000000000000;
inline constexpr std::uint16_t kNanHalf = 0x7e00;
inline constexpr std::uint32_t kNan8 = 0x7f;
inline constexpr std::uint32_t kInf32 = 0x7f800000;
inline constexpr std::uint32_t kMagnitude32 = 0x7fffffff;

// The bits of an f32 number rounded to fewer mantissa bits. Subnormals stay; overflow gives Inf.
template <int kDropped, class Bits>
[[gnu::always_inline]] inline Bits round_bits(Bits bits) {
  bits = (bits & kMagnitude32) > kInf32 ? Bits{} + kNan32 : bits;
  return (bits + ((1u << (kDropped - 1)) - 1) + (bits >> kDropped & 1)) >> kDropped << kDropped;
}

// The number of the fp8 code in the low 8 bits of `code`.
template <class Format, class Number, class Bits>
[[gnu::always_inline]] inline Number decode(Bits code) {
  const Bits magnitude = code & 0x7f;
  const Bits exponent_and_mantissa = magnitude << Format::kShift;
  const Number subnormal = std::bit_cast<Number>(magnitude | Format::kSubnormalUnit) -
                           std::bit_cast<float>(Format::kSubnormalUnit);
  Bits bits = exponent_and_mantissa + Format::kRebias;
  bits = magnitude < Format::kNormal ? std::bit_cast<Bits>(subnormal) : bits;
  bits = magnitude > Format::kLargest ? exponent_and_mantissa | kInf32 : bits;
  return std::bit_cast<Number>(bits | (code & 0x80) << 24);
}

// The fp8 code of x, rounded to nearest even. Inf and large finite numbers saturate; NaN loses its
// sign.
template <class Format, class Bits, class Number>
[[gnu::always_inline]] inline Bits encode(Number x) {
  constexpr int shift = Format::kShift;
  constexpr std::uint32_t max_bits = (Format::kLargest << shift) + Format::kRebias;
  constexpr std::uint32_t min_normal_bits = (Format::kNormal << shift) + Format::kRebias;
  const Bits bits = std::bit_cast<Bits>(x);
  const Bits magnitude = bits & kMagnitude32;
  const Bits clamped = magnitude < max_bits ? magnitude : Bits{} + max_bits;
  const Number sum = std::bit_cast<Number>(clamped) + std::bit_cast<float>(Format::kSubnormalUnit);
  Bits code = (round_bits<shift>(clamped) - Format::kRebias) >> shift;
  code = clamped < min_normal_bits ? std::bit_cast<Bits>(sum) - Format::kSubnormalUnit : code;
  return magnitude > kInf32 ? Bits{} + kNan8 : code | (bits >> 24 & 0x80);
}

// x as s8 in the low 8 bits, rounded to nearest even and saturated. NaN becomes 0.
template <class Bits, class Number>
[[gnu::always_inline]] inline Bits to_s8_bits(Number x) {
  constexpr float magic =
      0x1.8p23f;  // its last bit is worth 1, also after adding a negative number
  x = x == x ? x : Number{};
  x = x > 127.0f ? Number{} + 127.0f : x;
  x = x < -128.0f ? Number{} - 128.0f : x;
  return (std::bit_cast<Bits>(x + magic) - std::bit_cast<std::uint32_t>(magic)) & 0xff;
}

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(std::int8_t x) { return x; }
inline float widen(std::uint8_t x) { return x; }
inline float widen(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

inline float widen(Half x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
}

template <int kMantissaBits, int kBias, bool kInfinities>
inline float widen(Float8<kMantissaBits, kBias, kInfinities> x) {
  return decode<decltype(x), float>(std::uint32_t{x.bits});
}

template <int kDropped>
inline float widen(Rounded<kDropped> x) {
  return std::bit_cast<float>(round_bits<kDropped>(std::bit_cast<std::uint32_t>(x.value)));
}

inline void narrow(float x, float& out) { out = x == x ? x : std::bit_cast<float>(kNan32); }
inline void narrow(double x, double& out) { out = x == x ? x : std::bit_cast<double>(kNan64); }

inline void narrow(float x, BFloat16& out) {
  out.bits = static_cast<std::uint16_t>(round_bits<16>(std::bit_cast<std::uint32_t>(x)) >> 16);
}

inline void narrow(float x, Half& out) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & kMagnitude32;
  std::uint32_t half;
  if (magnitude > kInf32) {
    out.bits = kNanHalf;
    return;
  }
  if (magnitude >= 0x477ff000) {  // 65520 and more round to 2^16, which is Inf
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {
    half = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  } else {  // f32 numbers at 0.5 are as far apart as f16 subnormals, so the addition rounds
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  }
  out.bits = static_cast<std::uint16_t>((bits >> 16 & 0x8000) | half);
}

template <int kMantissaBits, int kBias, bool kInfinities>
inline void narrow(float x, Float8<kMantissaBits, kBias, kInfinities>& out) {
  using Format = Float8<kMantissaBits, kBias, kInfinities>;
  out.bits = static_cast<std::uint8_t>(encode<Format, std::uint32_t>(x));
}

inline void narrow(float x, std::int8_t& out) {
  out = static_cast<std::int8_t>(to_s8_bits<std::uint32_t>(x));
}

}  // namespace tcgemm::cpu
