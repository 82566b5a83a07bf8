// The 128-byte swizzle: in rows of 128 bytes, the 16-byte chunk `chunk` of row `row` lies at chunk
// position chunk ^ (row & 7). TMA writes it, wgmma reads it, and ldmatrix, stmatrix and the
// epilogue are free of bank conflicts on it. Rows start at a multiple of 1024 bytes.
#pragma once

namespace tcgemm::tile {

__device__ constexpr int swizzle128(int row, int chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

}  // namespace tcgemm::tile
