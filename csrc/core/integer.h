// Integer arithmetic that host and device code share.
#pragma once

#include <cstdint>

namespace tcgemm {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// A divisor that the host knows before a kernel runs. The quotient of a number below 2^31 is then a
// product and a shift (Granlund and Montgomery, "Division by Invariant Integers using
// Multiplication", 1994), where the hardware has no instruction for a division.
struct Divisor {
  static constexpr std::int64_t kLimit = std::int64_t(1) << 31;

  std::uint32_t value = 1;
  std::uint32_t multiplier = 0;  // ceil(2^shift / value)
  std::uint32_t shift = 0;       // 31 + ceil(log2(value))

  // The quotient of `dividend`, a number from 0 to kLimit - 1.
  constexpr std::uint32_t quotient(std::uint32_t dividend) const {
    return static_cast<std::uint32_t>(std::uint64_t(dividend) * multiplier >> shift);
  }
};

// `value`: 1 to 2^31 - 1.
constexpr Divisor divisor(std::int64_t value) {
  Divisor result{static_cast<std::uint32_t>(value), 0, 31};
  while (std::int64_t(1) << (result.shift - 31) < value) ++result.shift;
  result.multiplier = static_cast<std::uint32_t>(
      ((std::uint64_t(1) << result.shift) + result.value - 1) / result.value);
  return result;
}

}  // namespace tcgemm
