// The tile of 000_hgemm.cu: its sizes, how it lies in shared memory, and how fragments are read.
#pragma once

#include "ptx/ldmatrix.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::ladder {

// Rows and columns of a block's tile and of a warp's; the k of a k-block; whether rows are padded;
// products from one shared store to the next (0: all stores first); LDS.32 or ldmatrix.
template <int m, int n, int k, int warp_m, int warp_n, bool padded = true, int distance = 5,
          bool ldmatrix = false>
struct HgemmTile {
  static constexpr int kM = m, kN = n, kK = k, kWarpM = warp_m, kWarpN = warp_n;
  static constexpr int kDistance = distance, kThreads = m / warp_m * (n / warp_n) * 32;

  // Bytes before an element: 16 bytes of padding after every 128. It is linear in rows by eight.
  __host__ __device__ static constexpr int offset(int row, int column) {
    return 2 * (row * k + (padded ? row * k / 64 * 8 : 0) + column);
  }

  // Where a lane begins to read, for a warp's tile of rows from `row` on.
  __device__ static int lane_offset(int row) {
    const int lane = threadIdx.x % 32;
    return ldmatrix ? offset(row + lane, 0) : offset(row + lane / 4, lane % 4 * 2);
  }

  // Registers of 8x8 elements, one below the other: lane 4 g + t has elements 2 t and 2 t + 1 of
  // row g of each. LDS.32 loads one of them, ldmatrix four.
  template <int kCount>
  __device__ static void load(std::uint32_t (&registers)[kCount], std::uint32_t address) {
    if constexpr (ldmatrix) {
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        std::uint32_t four[4];
        ptx::ldmatrix_x4<false>(four, address + offset(8 * i, 0));
#pragma unroll
        for (int j = 0; j < 4; ++j) registers[i + j] = four[j];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        registers[i] = ptx::load_shared_b32(address + offset(8 * i, 0));
    }
  }
};

}  // namespace tcgemm::ladder
