// The 128-byte swizzle: in rows of 128 bytes, the 16-byte chunk `chunk` of row `row` lies at chunk
// position chunk ^ (row & 7). TMA writes it, wgmma reads it, and ldmatrix, stmatrix and the
// epilogue are free of bank conflicts on it. Rows start at a multiple of 1024 bytes.
//
// The 64-byte swizzle is the same for rows of 64 bytes, of which a line of banks holds two.
#pragma once

namespace tcgemm::tile {

__device__ constexpr int swizzle128(int row, int chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

__device__ constexpr int swizzle64(int row, int chunk) {
  return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
}

}  // namespace tcgemm::tile
