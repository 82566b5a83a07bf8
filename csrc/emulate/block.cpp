// Aligned sums of tensor cores, as the models describe them.
#include "emulate/block.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tcgemm::emulate {
namespace {

constexpr int kNoExponent = -10000;

// The addend truncated toward zero, in units of 2^(largest - fraction_bits). A zero may have an
// exponent above the largest, so it is not shifted.
std::int64_t align(std::int64_t significand, int shift) {
  if (significand == 0) return 0;
  const std::int64_t magnitude = significand < 0 ? -significand : significand;
  const std::int64_t aligned = shift >= 0 ? magnitude << shift : magnitude >> std::min(-shift, 63);
  return significand < 0 ? -aligned : aligned;
}

std::uint32_t infinity(bool is_f16, bool negative) {
  return is_f16 ? kInfF16 | std::uint32_t(negative) << 15 : kInfF32 | std::uint32_t(negative) << 31;
}

// To `bits` significant bits toward zero, as an FP32 number.
std::uint32_t truncate(std::uint64_t magnitude, int exponent, int bits) {
  const int top = 63 - std::countl_zero(magnitude) + exponent;  // the exponent of the result
  if (top > 127) return kInfF32;
  const int unit = std::max(top, -126) - (bits - 1);
  const int dropped = unit - exponent;
  magnitude = dropped > 63 ? 0 : dropped > 0 ? magnitude >> dropped : magnitude << -dropped;
  const auto field = std::uint32_t(magnitude << (24 - bits));
  return top < -126 ? field : field + (std::uint32_t(top + 126) << 23);
}

std::uint32_t round_to_f16(std::uint64_t magnitude, int exponent) {
  const int top = 63 - std::countl_zero(magnitude) + exponent;
  if (top > 15) return kInfF16;
  const int base = std::max(top, -14);
  const int dropped = base - 10 - exponent;
  if (dropped > 63) return 0;
  if (dropped > 0) {
    const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
    const std::uint64_t rest = magnitude & (2 * half - 1);
    magnitude >>= dropped;
    magnitude += rest > half || (rest == half && (magnitude & 1));
  } else {
    magnitude <<= -dropped;
  }
  // A carry into the exponent, up to Inf, is right as it is.
  return std::uint32_t(magnitude) + (top < -14 ? 0 : std::uint32_t(base + 14) << 10);
}

}  // namespace

std::uint32_t convert(std::int64_t sum, int exponent, Rounding rounding) {
  if (sum == 0) return 0;
  const bool negative = sum < 0;
  const auto magnitude = std::uint64_t(negative ? -sum : sum);
  const auto with_sign = [&](std::uint32_t result, int sign_bit) {
    return result == 0 ? 0 : result | std::uint32_t(negative) << sign_bit;
  };
  switch (rounding) {
    case Rounding::truncate_24: return with_sign(truncate(magnitude, exponent, 24), 31);
    case Rounding::truncate_14: return with_sign(truncate(magnitude, exponent, 14), 31);
    case Rounding::nearest_f16: return with_sign(round_to_f16(magnitude, exponent), 15);
  }
  return 0;
}

Block::Block(const Arithmetic& arithmetic, DType input_a, DType input_b, DType accumulator)
    : arithmetic(arithmetic),
      accumulator(format(accumulator)),
      product_fraction_bits(format(input_a).fraction_bits + format(input_b).fraction_bits) {}

std::uint32_t Block::special(const Number& c, const Number* a, const Number* b, int count) const {
  const bool is_f16 = arithmetic.rounding == Rounding::nearest_f16;
  bool positive = c.is_infinite && c.significand > 0, negative = c.is_infinite && c.significand < 0;
  bool nan = c.is_nan;
  for (int i = 0; i < count; ++i) {
    nan |= a[i].is_nan || b[i].is_nan;
    if (!a[i].is_infinite && !b[i].is_infinite) continue;
    nan |= a[i].significand == 0 || b[i].significand == 0;
    (((a[i].significand < 0) != (b[i].significand < 0)) ? negative : positive) = true;
  }
  if (nan || (positive && negative)) return is_f16 ? kNanF16 : kNanF32;
  return infinity(is_f16, negative);
}

std::uint32_t Block::add(std::uint32_t c_bits, const Number* a, const Number* b, int count) const {
  const Number c = decode(c_bits, accumulator);
  int largest = c.significand != 0 ? c.exponent : kNoExponent;
  bool is_special = c.is_special();
  for (int i = 0; i < count; ++i) {
    is_special |= a[i].is_special() || b[i].is_special();
    if (a[i].significand != 0 && b[i].significand != 0)
      largest = std::max(largest, a[i].exponent + b[i].exponent);
  }
  if (is_special) return special(c, a, b, count);
  if (largest == kNoExponent) return 0;
  largest = std::max(largest, int(arithmetic.lowest_exponent));
  const int unit = largest - arithmetic.fraction_bits;
  std::int64_t sum = align(c.significand, c.exponent - accumulator.fraction_bits - unit);
  for (int i = 0; i < count; ++i)
    sum += align(std::int64_t(a[i].significand) * b[i].significand,
                 a[i].exponent + b[i].exponent - product_fraction_bits - unit);
  return convert(sum, unit, arithmetic.rounding);
}

std::uint32_t add_f32(std::uint32_t x, std::uint32_t y) {
  const float sum = std::bit_cast<float>(x) + std::bit_cast<float>(y);
  return std::isnan(sum) ? kNanF32 : std::bit_cast<std::uint32_t>(sum);
}

std::uint32_t add_f16(std::uint32_t x, std::uint32_t y) {
  const Format f16 = format(DType::f16);
  const Number a = decode(x, f16), b = decode(y, f16);
  if (a.is_nan || b.is_nan) return kNanF16;
  if (a.is_infinite || b.is_infinite) {
    const bool opposite = a.is_infinite && b.is_infinite && a.significand != b.significand;
    return opposite ? kNanF16 : a.is_infinite ? x : y;
  }
  // All numbers are multiples of 2^-24. The sum of two negative zeros is negative.
  if (x == 0x8000 && y == 0x8000) return x;
  const std::int64_t sum =
      align(a.significand, a.exponent + 14) + align(b.significand, b.exponent + 14);
  return convert(sum, -24, Rounding::nearest_f16);
}

}  // namespace tcgemm::emulate
