// The c or residual of 16 bits in the unrolled epilogue (tile/unrolled.cuh).
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "ptx/convert.cuh"
#include "tile/store_z.cuh"

namespace tcgemm::tile {

// The addend of one unit of 16 rows x kUnit columns: 2 * kUnit / 8 pieces of 8 columns, the
// pieces of the rows 0-7 first. Lane q of the four lanes of a row loads every fourth piece as a
// vector of 16 bytes; exchange() then gives each lane its pair of columns of all pieces. Loads of
// single pairs are four times as many, and each reads half of a sector.
template <int kUnit>
struct UnitAddend {
  static constexpr int kPieces = kUnit / 8;         // of a row
  static constexpr int kVectors = 2 * kPieces / 4;  // of a lane

  std::uint32_t words[kVectors][4];

  __device__ __forceinline__ void load(int i, const std::uint16_t* from) {
    const uint4 vector = *reinterpret_cast<const uint4*>(from);
    words[i][0] = vector.x;
    words[i][1] = vector.y;
    words[i][2] = vector.z;
    words[i][3] = vector.w;
  }

  __device__ __forceinline__ void exchange() {
#pragma unroll
    for (auto& vector : words) transpose_among_four(vector);
  }

  // v += factor * addend, after exchange(). type: f16 or bf16, by a branch or by a predicate.
  template <bool kBranch, int kCount>
  __device__ __forceinline__ void add_to(float (&v)[kCount], float factor, DType type) const {
    const bool is_f16 = type == DType::f16;
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const std::uint32_t word = pair(i / 2 % 2, i / 4);
      float2 values;
      if constexpr (kBranch)
        values = is_f16 ? ptx::unpack_f16(word) : ptx::unpack_bf16(word);
      else
        values = ptx::unpack(is_f16, word);
      v[i] = add_product(v[i], factor, values.x);
      v[i + 1] = add_product(v[i + 1], factor, values.y);
    }
  }

  // The pair of columns of this lane in piece `j` of a row, after exchange().
  __device__ __forceinline__ std::uint32_t pair(int half, int j) const {
    const int piece = half * kPieces + j;
    return words[piece / 4][piece % 4];
  }
};

}  // namespace tcgemm::tile
