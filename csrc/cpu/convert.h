// Narrow numbers and f32, in integer arithmetic: the definition of each rounding. The vector
// versions in rows.h and f16c.h give the same bits.
//
// The templates here serve one value (Word: uint32_t, Number: float) and four side by side alike.
// They are inlined always: an instance on its own, made for one instruction set, could be linked
// into the code of another.
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

// (-1)^s 2^(e - bias) 1.m, subnormal where e is 0. With infinities, the largest e is that of Inf
// and NaN; without, all ones are NaN and there is no Inf.
template <int kMantissaBits, int kBias, bool kInfinities>
struct Float8 {
  static constexpr int kShift = 23 - kMantissaBits;  // brings e and m to their places in f32
  static constexpr std::uint32_t kRebias = std::uint32_t{127 - kBias} << 23;
  static constexpr std::uint32_t kNormal = 1u << kMantissaBits;  // the smallest
  static constexpr std::uint32_t kLargest = kInfinities ? 0x7f - kNormal : 0x7e;
  // Of the f32 number whose last bit is worth the smallest subnormal: sums with it round to that.
  static constexpr std::uint32_t kAnchor = std::uint32_t{128 - kBias + kShift} << 23;

  std::uint8_t bits;
};

using E4M3 = Float8<3, 7, false>;
using E5M2 = Float8<2, 15, true>;

// An f32 number in memory that a product reads with fewer bits of mantissa.
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

// The word of an f32 number without its low bits. Subnormals stay, the overflow is Inf.
template <int kDropped, class Word>
[[gnu::always_inline]] inline Word rounded(Word word) {
  word = (word & kMagnitude32) > kInf32 ? Word{} + kNan32 : word;
  return (word + ((1u << (kDropped - 1)) - 1) + (word >> kDropped & 1)) >> kDropped << kDropped;
}

// Of the code in the low 8 bits of each word.
template <class Format, class Number, class Word>
[[gnu::always_inline]] inline Number decoded(Word code) {
  const Word magnitude = code & 0x7f;
  const Word fields = magnitude << Format::kShift;
  const Number subnormal =
      std::bit_cast<Number>(magnitude | Format::kAnchor) - std::bit_cast<float>(Format::kAnchor);
  Word word = fields + Format::kRebias;
  word = magnitude < Format::kNormal ? std::bit_cast<Word>(subnormal) : word;
  word = magnitude > Format::kLargest ? fields | kInf32 : word;
  return std::bit_cast<Number>(word | (code & 0x80) << 24);
}

// To nearest even; Inf and what is finite saturate, NaN loses its sign.
template <class Format, class Word, class Number>
[[gnu::always_inline]] inline Word encoded(Number x) {
  constexpr int shift = Format::kShift;
  constexpr std::uint32_t most = (Format::kLargest << shift) + Format::kRebias;
  constexpr std::uint32_t normal = (Format::kNormal << shift) + Format::kRebias;
  const Word word = std::bit_cast<Word>(x);
  const Word magnitude = word & kMagnitude32;
  const Word kept = magnitude < most ? magnitude : Word{} + most;
  const Number sum = std::bit_cast<Number>(kept) + std::bit_cast<float>(Format::kAnchor);
  Word code = (rounded<shift>(kept) - Format::kRebias) >> shift;
  code = kept < normal ? std::bit_cast<Word>(sum) - Format::kAnchor : code;
  return magnitude > kInf32 ? Word{} + kNan8 : code | (word >> 24 & 0x80);
}

// s8 in the low 8 bits: to nearest even, saturated; NaN becomes 0.
template <class Word, class Number>
[[gnu::always_inline]] inline Word integer8(Number x) {
  constexpr float anchor = 0x1.8p23f;  // the last bit is worth 1, also with negative numbers
  x = x == x ? x : Number{};
  x = x > 127.0f ? Number{} + 127.0f : x;
  x = x < -128.0f ? Number{} - 128.0f : x;
  return (std::bit_cast<Word>(x + anchor) - std::bit_cast<std::uint32_t>(anchor)) & 0xff;
}

inline float widened(float x) { return x; }
inline double widened(double x) { return x; }
inline float widened(std::int8_t x) { return x; }
inline float widened(std::uint8_t x) { return x; }
inline float widened(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

inline float widened(Half x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
}

template <int kMantissaBits, int kBias, bool kInfinities>
inline float widened(Float8<kMantissaBits, kBias, kInfinities> x) {
  return decoded<decltype(x), float>(std::uint32_t{x.bits});
}

template <int kDropped>
inline float widened(Rounded<kDropped> x) {
  return std::bit_cast<float>(rounded<kDropped>(std::bit_cast<std::uint32_t>(x.value)));
}

inline void narrow(float x, float& out) { out = x == x ? x : std::bit_cast<float>(kNan32); }
inline void narrow(double x, double& out) { out = x == x ? x : std::bit_cast<double>(kNan64); }

inline void narrow(float x, BFloat16& out) {
  out.bits = static_cast<std::uint16_t>(rounded<16>(std::bit_cast<std::uint32_t>(x)) >> 16);
}

inline void narrow(float x, Half& out) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = word & kMagnitude32;
  std::uint32_t half;
  if (magnitude > kInf32) {
    out.bits = kNanHalf;
    return;
  }
  if (magnitude >= 0x477ff000) {  // 65520, halfway to what would be 2^16: Inf
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {
    half = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  } else {  // the spacing of f32 numbers at 0.5 is that of f16 subnormals: the addition rounds
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  }
  out.bits = static_cast<std::uint16_t>((word >> 16 & 0x8000) | half);
}

template <int kMantissaBits, int kBias, bool kInfinities>
inline void narrow(float x, Float8<kMantissaBits, kBias, kInfinities>& out) {
  using Format = Float8<kMantissaBits, kBias, kInfinities>;
  out.bits = static_cast<std::uint8_t>(encoded<Format, std::uint32_t>(x));
}

inline void narrow(float x, std::int8_t& out) {
  out = static_cast<std::int8_t>(integer8<std::uint32_t>(x));
}

}  // namespace tcgemm::cpu
