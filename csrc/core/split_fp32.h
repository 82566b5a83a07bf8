// An f32 operand as 16-bit parts, whose products on tensor cores add up to an f32-accurate one.
//
// Seen from k an operand is rows x k. Each row is scaled by a power of two, which is exact, and its
// elements are split:
//
//   x' = x * 2^(top - high)           high: exponent of the row's largest |x|; so |x'| < 2^(top+1)
//
//   f16   x' = p0 + p1 * 2^-11        p0 = f16(x'), p1 = f16((x' - p0) * 2^11)         top 14
//   bf16  x' = p0 + p1 + p2           each the rounded rest of those before            top of k
//
// Three products of f16 parts (p1 p0, p0 p1, p0 p0), or six of bf16 parts, leave out what is below
// 2^-22, or 2^-24, of a product. Both are right for elements whose parts are normal numbers: within
// 2^28 of their row's largest one, or 2^(62 + top). A row that holds a smaller one is `wide`. Where
// many rows are wide the product is made of bf16 parts; the two sides of it:
//
//   - elements below the window keep an absolute error d, so a result is off by less than
//     d * k * 2^(top + 1) for a wide row or column. A result of a wide row or column below 2^24
//     times that is doubtful, and is computed again from the f32 operands.
//   - a row with Inf or NaN has no parts (they are zero): its results are all doubtful.
//
// So whatever the choice between f16 and bf16, every result is either as accurate as its products
// or computed again. Doubts are noted in flags, a byte for 64 x 64 of the result.
#pragma once

#include <cstdint>

namespace tcgemm {

inline constexpr int kF16Terms = 2, kBf16Terms = 3;
constexpr int split_product_count(int terms) { return terms == kF16Terms ? 3 : 6; }
inline constexpr int kLowShift = 11;  // of f16's second part

// The largest scaled exponent: f16 ends at 2^16; for bf16 a sum of k products stays finite in f32.
inline constexpr int kF16Top = 14;
constexpr int bf16_top(std::int64_t k) {
  int log = 0;
  while ((std::int64_t(1) << log) < k) ++log;
  return (125 - log) / 2;
}
constexpr int split_top(int terms, std::int64_t k) {
  return terms == kF16Terms ? kF16Top : bf16_top(k);
}

// What is kept of a row: `high` and the exponents between it and that of the smallest |x| > 0.
using Range = std::uint32_t;
inline constexpr int kNotFinite = 0xffff;  // as a spread: the row holds Inf or NaN
constexpr Range range(int high, int spread) { return Range(high) << 16 | Range(spread); }
constexpr int high(Range range) { return std::int32_t(range) >> 16; }
constexpr int spread(Range range) { return range & 0xffff; }

// The largest spread of a row that is not wide.
inline constexpr int kF16Spread = kF16Top + 14;
constexpr int max_spread(int terms, std::int64_t k) {
  return terms == kF16Terms ? kF16Spread : 62 + bf16_top(k);
}
// The magnitude of a result, scaled, from which one of a wide row is right: see above; d is 2^-36
// for f16 and 2^-134 for bf16.
constexpr float error_threshold(int terms, std::int64_t k) {
  float limit = float(k);
  const int exponent = terms == kF16Terms ? 24 - 36 + kF16Top + 1 : 24 - 134 + bf16_top(k) + 1;
  for (int i = 0; i < exponent; ++i) limit *= 2;
  for (int i = 0; i > exponent; --i) limit /= 2;
  return limit;
}

// A pass over an operand leaves up to kMaxSplitStatistics notes, each of the rows that one block saw: how
// many of them are wide for f16, and whether one is not finite or far from 1.
inline constexpr int kMaxSplitStatistics = 512;
inline constexpr int kMaxInRangeExponent = 40;
constexpr std::uint32_t row_statistics(int wide, bool out_of_range) {
  return std::uint32_t(wide) << 1 | out_of_range;
}
constexpr int wide_range_rows(std::uint32_t statistics) { return int(statistics >> 1); }
constexpr bool out_of_range(std::uint32_t statistics) { return statistics & 1; }

// bf16 parts, if one note has this many wide rows, or this many notes, of both operands, have any.
inline constexpr int kWideRows = 4, kWideStatistics = 16;

// What the notes of both operands come to, as one word.
inline constexpr std::uint32_t kUseBf16 = 1;
// Some row is wide or untame: results are scaled in two steps, and looked at for doubts. Always set
// with kUseBf16.
inline constexpr std::uint32_t kNeedsChecks = 2;

inline constexpr int kRecomputeTile = 64;

}  // namespace tcgemm
