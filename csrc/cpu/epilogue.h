// The epilogue of a row of sums: activation(alpha * scale_a * scale_b * sum + beta * c + bias) +
// residual, then amax, then scale_out. It is compiled once, for plain x86-64 without fused
// multiply-add, so it gives the same bits on every machine.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "cpu/kernels.h"
#include "cpu/orient.h"

namespace tcgemm::cpu {

// Consecutive elements of a row of the result.
struct Segment {
  std::int64_t batch, row, column, n;
};

// |x| as an integer. These integers have the order of the magnitudes, with NaN above Inf.
template <class T>
using MagnitudeBits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

template <class T>
constexpr MagnitudeBits<T> magnitude_bits(T x) {
  constexpr MagnitudeBits<T> sign = std::bit_cast<MagnitudeBits<T>>(T(-0.0));
  return std::bit_cast<MagnitudeBits<T>>(x) & ~sign;
}

// Works in place. `scratch` has room for n values. `amax_bits` is updated if the problem has amax.
// Block scales are already part of the sums.
template <class T>
void apply_epilogue(const OrientedProblem& oriented, const Kernels<T>& kernels,
                    const Segment& segment, T* values, T* scratch, MagnitudeBits<T>& amax_bits);

// Applies the epilogue of an s32 result modulo 2^32, and stores it.
void store_integers(const Problem& problem, const Segment& segment, std::uint32_t* values);

}  // namespace tcgemm::cpu
