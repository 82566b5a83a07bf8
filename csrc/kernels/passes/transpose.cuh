// Transposes four vectors of consecutive leading-dimension rows into columns of four elements,
// which are converted on the way.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/passes/vector_reader.cuh"
#include "ptx/convert.cuh"

namespace tcgemm::passes {

__device__ inline std::uint32_t bf16_pair(std::uint32_t low, std::uint32_t high) {
  return ptx::pack<DType::bf16>(__uint_as_float(low), __uint_as_float(high));
}

// Swaps byte i of word j with byte j of word i.
__device__ inline void transpose_bytes(std::uint32_t (&words)[4]) {
  const auto [a, b, c, d] = words;
  const std::uint32_t ab = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const std::uint32_t cd = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  words[0] = __byte_perm(ab, cd, 0x5410), words[1] = __byte_perm(ab, cd, 0x7632);
  words[2] = __byte_perm(ab_high, cd_high, 0x5410);
  words[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// The four vectors before and after:
//
//     row 0   a a a a ..        column 0   a b c d
//     row 1   b b b b ..   ->   column 1   a b c d
//     row 2   c c c c ..        column 2   a b c d
//     row 3   d d d d ..        ..
//
// TransposeBuffer does the rest in shared memory: threads write these columns and read 16-byte
// vectors of the rows of the copy.
//
// kIn and kOut are the bytes of an element before and after; 4 and 2 are f32 and bf16.
template <int kIn, int kOut>
__device__ inline void transpose(const uint4 (&vectors)[4],
                                 std::uint32_t (&columns)[kVectorBytes / kIn][kOut]) {
  std::uint32_t rows[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    rows[i][0] = vectors[i].x, rows[i][1] = vectors[i].y;
    rows[i][2] = vectors[i].z, rows[i][3] = vectors[i].w;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t a = rows[0][i], b = rows[1][i], c = rows[2][i], d = rows[3][i];
    if constexpr (kIn == 1) {
      std::uint32_t words[4] = {a, b, c, d};
      transpose_bytes(words);
#pragma unroll
      for (int j = 0; j < 4; ++j) columns[4 * i + j][0] = words[j];
    } else if constexpr (kIn == 2) {
      columns[2 * i][0] = __byte_perm(a, b, 0x5410), columns[2 * i][1] = __byte_perm(c, d, 0x5410);
      columns[2 * i + 1][0] = __byte_perm(a, b, 0x7632);
      columns[2 * i + 1][1] = __byte_perm(c, d, 0x7632);
    } else if constexpr (kOut == 2) {
      columns[i][0] = bf16_pair(a, b), columns[i][1] = bf16_pair(c, d);
    } else if constexpr (kIn == 4) {
      columns[i][0] = a, columns[i][1] = b, columns[i][2] = c, columns[i][3] = d;
    } else {
#pragma unroll
      for (int row = 0; row < 4; ++row) columns[i / 2][2 * row + i % 2] = rows[row][i];
    }
  }
}

// Holds 128 bytes of rows for kDepth elements of k, transposed: a row has kRowVectors vectors of
// the copy. The XOR swizzle puts vectors of eight rows, which are written together, into different
// banks, and also the eight vectors that are read together.
template <int kIn, int kOut, int kDepth>
struct TransposeBuffer {
  static constexpr int kElements = kVectorBytes / kIn;
  static constexpr int kRows = 8 * kElements;
  static constexpr int kRowVectors = kDepth * kOut / kVectorBytes;
  static constexpr int kVectors = kRows * kRowVectors;
  static_assert(kRowVectors % 8 == 0);

  uint4 vectors[kVectors];

  __device__ static int swizzled_index(int row, int vector) {
    return row * kRowVectors + (vector ^ (row / kElements & 7));
  }

  // Writes the columns of vector `vector` of ld_rows 4 * group to 4 * group + 3.
  __device__ void put(int vector, int group, const std::uint32_t (&columns)[kElements][kOut]) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int row = vector * kElements + i, word = group * kOut;
      const std::uint32_t* column = columns[i];
      std::uint32_t* to =
          reinterpret_cast<std::uint32_t*>(&vectors[swizzled_index(row, word / 4)]) + word % 4;
      if constexpr (kOut == 1) {
        *to = column[0];
      } else if constexpr (kOut == 2) {
        *reinterpret_cast<uint2*>(to) = {column[0], column[1]};
      } else {
#pragma unroll
        for (int j = 0; j < kOut / 4; ++j)
          vectors[swizzled_index(row, word / 4 + j)] = {column[4 * j], column[4 * j + 1],
                                                        column[4 * j + 2], column[4 * j + 3]};
      }
    }
  }

  __device__ uint4 get(int row, int vector) const { return vectors[swizzled_index(row, vector)]; }
};

}  // namespace tcgemm::passes
