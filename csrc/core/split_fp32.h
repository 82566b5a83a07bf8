// Split FP32: an f32 operand becomes a sum of 16-bit terms, and tensor-core GEMMs of the terms add
// up to an f32-accurate GEMM. f16x2 has two f16 terms, bf16x3 has three bf16 terms.
#pragma once

#include <cstdint>

namespace tcgemm {

// Both operands are seen as rows x k. Each row is scaled by a power of two, which is exact, and
// then its elements are split:
//
//   x' = x * 2^(top - high)        high: exponent of the largest |x| of the row; |x'| < 2^(top + 1)
//
//   f16x2    x' = p0 + p1 * 2^-11  p0 = f16(x'), p1 = f16((x' - p0) * 2^11)       top = 14
//   bf16x3   x' = p0 + p1 + p2     each term: the rest after the ones before it,  top: bf16_top(k)
//                                  rounded to bf16
//
// f16x2 adds three products of terms (p1 p0, p0 p1, p0 p0); bf16x3 adds six. They omit less than
// 2^-22 and 2^-24 of a product. This accuracy holds for elements whose terms are normal numbers:
// those within 2^28 (f16x2) or 2^(62 + top) (bf16x3) of the largest element of their row. A row has
// a wide range if it holds a smaller element that is not 0. If many rows have a wide range for
// f16x2, the GEMM uses bf16x3. In both cases some results need a check:
//
//   - Elements below that window have an absolute error of at most d, so a result of a wide-range
//     row or column has an error below d * k * 2^(top + 1). If its magnitude is less than 2^24
//     times this bound, it is computed again from the f32 operands.
//   - The terms of a row with Inf or NaN are zero. All its results are computed again.
//
// So with either kind of terms every result is either f32-accurate or computed again. The recompute
// mask has bytes for each 64 x 64 tile of the result.

inline constexpr int kF16Terms = 2, kBf16Terms = 3;
inline constexpr int kTf32Terms = 2;
constexpr int split_product_count(int terms) { return terms == kBf16Terms ? 6 : 3; }
inline constexpr int kLowShift = 11;  // the second f16 term is scaled by 2^kLowShift

// The largest scaled exponent. f16 overflows at 2^16; with bf16 a sum of k products is finite in
// f32.
inline constexpr int kF16Top = 14;
constexpr int bf16_top(std::int64_t k) {
  int log = 0;
  while ((std::int64_t(1) << log) < k) ++log;
  return (125 - log) / 2;
}
constexpr int split_top(int terms, std::int64_t k) {
  return terms == kF16Terms ? kF16Top : bf16_top(k);
}

// The exponent range of a row: `high`, and `spread`, which is `high` less the exponent of the
// smallest |x| > 0.
using Range = std::uint32_t;
inline constexpr int kNotFinite = 0xffff;  // the spread of a row with Inf or NaN
constexpr Range range(int high, int spread) { return Range(high) << 16 | Range(spread); }
constexpr int high(Range range) { return std::int32_t(range) >> 16; }
constexpr int spread(Range range) { return range & 0xffff; }

// The largest spread of a row whose range is not wide.
inline constexpr int kF16Spread = kF16Top + 14;
constexpr int max_spread(int terms, std::int64_t k) {
  return terms == kF16Terms ? kF16Spread : 62 + bf16_top(k);
}
// A result of a wide-range row or column is accurate if its scaled magnitude is at least this: 2^24
// * d * k * 2^(top + 1), with d = 2^-36 for f16 and 2^-134 for bf16.
constexpr float error_threshold(int terms, std::int64_t k) {
  float limit = float(k);
  const int exponent = terms == kF16Terms ? 24 - 36 + kF16Top + 1 : 24 - 134 + bf16_top(k) + 1;
  for (int i = 0; i < exponent; ++i) limit *= 2;
  for (int i = 0; i > exponent; --i) limit /= 2;
  return limit;
}

// Each CTA of the first split pass, or each cluster, writes one statistics word about its rows: how
// many have a wide range for f16, and whether one holds Inf or NaN, or its `high` is above
// kMaxInRangeExponent in magnitude. The second pass reduces these words to the decision.
inline constexpr int kMaxSplitStatistics = 512;
inline constexpr int kMaxInRangeExponent = 40;
constexpr std::uint32_t row_statistics(int wide_range, bool out_of_range) {
  return std::uint32_t(wide_range) << 1 | out_of_range;
}
constexpr int wide_range_rows(std::uint32_t statistics) { return int(statistics >> 1); }
constexpr bool out_of_range(std::uint32_t statistics) { return statistics & 1; }

// The GEMM uses bf16 terms if one statistics word counts kMaxWideRows wide-range rows, or if
// kMaxWideStatistics words of both operands together count any.
inline constexpr int kMaxWideRows = 4, kMaxWideStatistics = 16;

// Bits of the decision, one 32-bit word for both operands.
inline constexpr std::uint32_t kUseBf16 = 1;
// Some row has a wide range or an exponent out of range. Results are rescaled by several factors,
// since a single one could overflow, and compared with error_threshold. Always set together with
// kUseBf16.
inline constexpr std::uint32_t kNeedsChecks = 2;

inline constexpr int kRecomputeTile = 64;  // rows and columns of a tile
inline constexpr int kMaskBytes = 4;       // of a tile in the mask: one for each 16 rows

// tf32x2 has two TF32 terms, which the kernel makes (kernels/sm90/mainloop/tf32x2.cuh):
//
//   x = p0 + p1   p0 = tf32(x), p1 = x - p0 without its last 13 bits
//
// TF32 has the exponents of f32, so rows are not scaled. The three products of terms omit less than
// 2^-21 of a product, which averages out over k unless few products dominate a sum. So a range is
// wide if an element is below 2^-kTf32x2Spread of another one, or below 2^kLeastTf32x2Exponent,
// where p1 loses bits. The kernel looks at the elements that one lane has of a row of a in its
// slice of k, and at four adjacent ones of a column of b. The results of a wide range become NaN,
// and so do those of Inf. All results that are not finite are computed again.
inline constexpr int kTf32x2Spread = kF16Spread;
inline constexpr int kLeastTf32x2Exponent = -112;

}  // namespace tcgemm
