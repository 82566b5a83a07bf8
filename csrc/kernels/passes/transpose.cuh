// Four chunks that lie above each other -> what each of their columns holds, side by side:
//
//     line 0   a a a a ..        strip 0   a b c d
//     line 1   b b b b ..   ->   strip 1   a b c d      4 elements a strip, converted on the way
//     line 2   c c c c ..        strip 2   a b c d
//     line 3   d d d d ..        ..
//
// and shared memory between threads that read 16 bytes of four lines and those that write 16 bytes
// of one row of the copy.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/passes/line.cuh"
#include "ptx/convert.cuh"

namespace tcgemm::passes {

__device__ inline std::uint32_t bf16_pair(std::uint32_t low, std::uint32_t high) {
  return ptx::pack<DType::bf16>(__uint_as_float(low), __uint_as_float(high));
}

// Byte i of word j <-> byte j of word i.
__device__ inline void turn_bytes(std::uint32_t (&words)[4]) {
  const auto [a, b, c, d] = words;
  const std::uint32_t ab = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const std::uint32_t cd = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  words[0] = __byte_perm(ab, cd, 0x5410), words[1] = __byte_perm(ab, cd, 0x7632);
  words[2] = __byte_perm(ab_high, cd_high, 0x5410);
  words[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// kIn, kOut: bytes of an element before and after; 4 and 2 are f32 and bf16.
template <int kIn, int kOut>
__device__ inline void turn(const uint4 (&chunks)[4], std::uint32_t (&strips)[kChunk / kIn][kOut]) {
  std::uint32_t lines[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    lines[i][0] = chunks[i].x, lines[i][1] = chunks[i].y;
    lines[i][2] = chunks[i].z, lines[i][3] = chunks[i].w;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t a = lines[0][i], b = lines[1][i], c = lines[2][i], d = lines[3][i];
    if constexpr (kIn == 1) {
      std::uint32_t words[4] = {a, b, c, d};
      turn_bytes(words);
#pragma unroll
      for (int j = 0; j < 4; ++j) strips[4 * i + j][0] = words[j];
    } else if constexpr (kIn == 2) {
      strips[2 * i][0] = __byte_perm(a, b, 0x5410), strips[2 * i][1] = __byte_perm(c, d, 0x5410);
      strips[2 * i + 1][0] = __byte_perm(a, b, 0x7632);
      strips[2 * i + 1][1] = __byte_perm(c, d, 0x7632);
    } else if constexpr (kOut == 2) {
      strips[i][0] = bf16_pair(a, b), strips[i][1] = bf16_pair(c, d);
    } else if constexpr (kIn == 4) {
      strips[i][0] = a, strips[i][1] = b, strips[i][2] = c, strips[i][3] = d;
    } else {
#pragma unroll
      for (int line = 0; line < 4; ++line) strips[i / 2][2 * line + i % 2] = lines[line][i];
    }
  }
}

// kLines lines of k, 128 bytes of rows each, turned: a row has kRowChunks chunks of the copy.
// Exclusive or spreads the chunks of eight rows, written together, over the banks, and leaves the
// eight chunks that are read together in different ones.
template <int kIn, int kOut, int kLines>
struct TransposeBuffer {
  static constexpr int kElements = kChunk / kIn;
  static constexpr int kRows = 8 * kElements;
  static constexpr int kRowChunks = kLines * kOut / kChunk;
  static constexpr int kChunks = kRows * kRowChunks;
  static_assert(kRowChunks % 8 == 0);

  uint4 chunks[kChunks];

  __device__ static int place(int row, int chunk) {
    return row * kRowChunks + (chunk ^ (row / kElements & 7));
  }

  // Strips of chunk `column`, lines 4 * group to 4 * group + 3.
  __device__ void put(int column, int group, const std::uint32_t (&strips)[kElements][kOut]) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int row = column * kElements + i, words = group * kOut;
      const std::uint32_t* strip = strips[i];
      std::uint32_t* to =
          reinterpret_cast<std::uint32_t*>(&chunks[place(row, words / 4)]) + words % 4;
      if constexpr (kOut == 1) {
        *to = strip[0];
      } else if constexpr (kOut == 2) {
        *reinterpret_cast<uint2*>(to) = {strip[0], strip[1]};
      } else {
#pragma unroll
        for (int j = 0; j < kOut / 4; ++j)
          chunks[place(row, words / 4 + j)] = {strip[4 * j], strip[4 * j + 1], strip[4 * j + 2],
                                               strip[4 * j + 3]};
      }
    }
  }

  __device__ uint4 get(int row, int chunk) const { return chunks[place(row, chunk)]; }
};

}  // namespace tcgemm::passes
