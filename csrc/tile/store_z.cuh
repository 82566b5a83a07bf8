// Stores the argument of the activation (Epilogue::z) from registers: 16-bit values, whose rows are
// vectors. The unrolled epilogue alone stores it; for other epilogues it is a product of its own.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "ptx/convert.cuh"
#include "tile/epilogue.cuh"

namespace tcgemm::tile {

// Transposes 4 x 4 words among the four lanes of a row: word i of lane q becomes word q of lane i.
__device__ inline void transpose_among_four(std::uint32_t (&words)[4]) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool upper = (threadIdx.x & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      const std::uint32_t sent = upper ? words[i] : words[i + distance];
      const std::uint32_t got = __shfl_xor_sync(0xffffffffu, sent, distance);
      words[i] = upper ? got : words[i];
      words[i + distance] = upper ? words[i + distance] : got;
    }
  }
}

// Stores a unit. A lane has pairs of columns; the four lanes of a row exchange them, so that each
// stores 16 bytes of a row.
template <int kCount>
__device__ inline void store_z(const Epilogue& epilogue, const Window& window,
                               const float (&v)[kCount]) {
  constexpr int kBlocks = kCount / 4;  // of 8 columns
  static_assert(kCount % 8 == 0);
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int first = 0; first < 2 * kBlocks; first += 4) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = v + (first + i) % kBlocks * 4 + (first + i) / kBlocks * 2;
      words[i] = epilogue.out_dtype == DType::bf16 ? ptx::pack<DType::bf16>(pair[0], pair[1])
                                                   : ptx::pack<DType::f16>(pair[0], pair[1]);
    }
    transpose_among_four(words);
    const int block = (first + lane) % kBlocks, half = (first + lane) / kBlocks;
    const int row = half == 0 ? window.lane_rows[0] : window.lane_rows[1];
    if (row >= window.rows || 8 * block >= window.cols) continue;
    const std::int64_t offset = window.batch * epilogue.z_stride_batch +
                                (window.row + row) * epilogue.z_pitch + window.col + 8 * block;
    *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(epilogue.z) + offset) = {
        words[0], words[1], words[2], words[3]};
  }
}

}  // namespace tcgemm::tile
