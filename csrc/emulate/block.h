// The sum of one block: some products and the accumulator, added at once.
#pragma once

#include <cstdint>

#include "emulate/models.h"
#include "emulate/numbers.h"

namespace tcgemm::emulate {

// An accumulator of FP32 or FP16 as its bits.
struct Block {
  Arithmetic arithmetic;
  Format accumulator;
  int product_fraction_bits;  // of a product of two significands

  Block(const Arithmetic& arithmetic, DType input_a, DType input_b, DType accumulator);

  // The accumulator after c + a[0] * b[0] + .. + a[count - 1] * b[count - 1].
  //
  // Products are exact. E is the largest exponent of an addend that is not zero, and at least
  // lowest_exponent; the exponent of a product is the sum of its operands' exponents. Each addend
  // is truncated toward zero to a multiple of 2^(E - fraction_bits). Their sum is exact, and
  // converted once. A sum that becomes zero is +0.
  std::uint32_t add(std::uint32_t c, const Number* a, const Number* b, int count) const;

 private:
  std::uint32_t special(const Number& c, const Number* a, const Number* b, int count) const;
};

// sum * 2^exponent, converted.
std::uint32_t convert(std::int64_t sum, int exponent, Rounding rounding);

// The FP32 (FP16) number x + y, rounded to nearest even.
std::uint32_t add_f32(std::uint32_t x, std::uint32_t y);
std::uint32_t add_f16(std::uint32_t x, std::uint32_t y);

}  // namespace tcgemm::emulate
