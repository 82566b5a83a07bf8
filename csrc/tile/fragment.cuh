// The accumulator fragment of one warp: 16 rows x n columns. wgmma's m64nN and mma.sync's m16n8
// have the same layout, so one epilogue serves both.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "ptx/convert.cuh"

namespace tcgemm::tile {

// The place of a register in the fragment:
//
//   lane = 4 * g + t; block j of 8 columns:   row g     : columns 8j + 2t, 8j + 2t + 1     (half 0)
//                                             row g + 8 : the same columns                 (half 1)
//
// f32 and s32 accumulators use one register for each element, f16 ones one for each pair. The
// epilogue computes with values of type float, or std::int32_t if the accumulator is s32.

template <DType kAccumulator>
using Value = std::conditional_t<kAccumulator == DType::s32, std::int32_t, float>;

template <DType kAccumulator>
using Register = std::conditional_t<kAccumulator == DType::f16, std::uint32_t, Value<kAccumulator>>;

// Registers of a thread for a fragment of 16 rows x n columns.
template <DType kAccumulator>
constexpr int registers(int n) {
  return n * bytes(kAccumulator) / 8;
}

__device__ inline float2 pair(const float* fragment, int block, int half) {
  return {fragment[4 * block + 2 * half], fragment[4 * block + 2 * half + 1]};
}

__device__ inline int2 pair(const std::int32_t* fragment, int block, int half) {
  return {fragment[4 * block + 2 * half], fragment[4 * block + 2 * half + 1]};
}

__device__ inline float2 pair(const std::uint32_t* fragment, int block, int half) {
  return ptx::unpack_f16(fragment[2 * block + half]);
}

// Four registers as the 16 bytes that shared memory has of them.
template <class Register>
__device__ inline uint4 vector_of(const Register* registers) {
  return {__builtin_bit_cast(std::uint32_t, registers[0]),
          __builtin_bit_cast(std::uint32_t, registers[1]),
          __builtin_bit_cast(std::uint32_t, registers[2]),
          __builtin_bit_cast(std::uint32_t, registers[3])};
}

template <class Register>
__device__ inline void set_vector(Register* registers, const uint4& words) {
  registers[0] = __builtin_bit_cast(Register, words.x);
  registers[1] = __builtin_bit_cast(Register, words.y);
  registers[2] = __builtin_bit_cast(Register, words.z);
  registers[3] = __builtin_bit_cast(Register, words.w);
}

template <class Register>
__device__ inline void add_vector(Register* registers, const uint4& words) {
  registers[0] += __builtin_bit_cast(Register, words.x);
  registers[1] += __builtin_bit_cast(Register, words.y);
  registers[2] += __builtin_bit_cast(Register, words.z);
  registers[3] += __builtin_bit_cast(Register, words.w);
}

}  // namespace tcgemm::tile
