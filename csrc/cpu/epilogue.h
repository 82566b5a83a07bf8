// What happens to a row of sums before it is rounded: activation(alpha * scale_a * scale_b * sum +
// beta * c + bias) + residual, then its largest size, then scale_out. One translation unit, plain
// x86-64, no fused multiply-add: the same bits everywhere.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "cpu/orient.h"
#include "cpu/kernels.h"

namespace tcgemm::cpu {

// Neighbours of a row of the result.
struct Segment {
  std::int64_t batch, row, column, n;
};

// |x| as an integer, in the order of the sizes, with NaN above Inf.
template <class T>
using SizeBits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

template <class T>
constexpr SizeBits<T> size_bits(T x) {
  constexpr SizeBits<T> sign = std::bit_cast<SizeBits<T>>(T(-0.0));
  return std::bit_cast<SizeBits<T>>(x) & ~sign;
}

// In place. `scratch` has room for n values; `largest` grows where the problem asks for amax.
// Scales of blocks are already in the sums.
template <class T>
void apply_epilogue(const Arranged& arranged, Load<T> load, const Segment& segment, T* values,
                    T* scratch, SizeBits<T>& largest);

// The epilogue of s32 results, modulo 2^32, and their store.
void store_integers(const Problem& problem, const Segment& segment, std::uint32_t* values);

}  // namespace tcgemm::cpu
