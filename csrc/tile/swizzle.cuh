// The 128-byte swizzle: in rows of 128 bytes, the 16-byte chunk `chunk` of row `row` is stored at
// chunk position chunk ^ (row & 7). TMA writes this layout and wgmma reads it; ldmatrix, stmatrix
// and the epilogue have no bank conflicts on it. The first row is at a multiple of 1024 bytes.
//
// The 64-byte swizzle is for rows of 64 bytes; the 32 banks, 128 bytes, hold two rows.
#pragma once

namespace tcgemm::tile {

__device__ constexpr int swizzle128(int row, int chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

__device__ constexpr int swizzle64(int row, int chunk) {
  return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
}

}  // namespace tcgemm::tile
