// Step 5: a warp computes 4x4 tiles. Four fragments of b stay in registers while four fragments of
// a pass by, so that eight loads from global memory serve sixteen products.
#include <cuda_fp16.h>
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;
constexpr int kTile = 16, kTiles = 4, kWarpTile = kTile * kTiles;

__global__ void multiply_002_5(const half* a, const half* b, float* c, int n, int k) {
  const int row = blockIdx.x * kWarpTile, column = blockIdx.y * kWarpTile;
  wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major> fragment_a;
  wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major> fragments_b[kTiles];
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> sums[kTiles][kTiles];
#pragma unroll
  for (int r = 0; r < kTiles; ++r)
#pragma unroll
    for (int s = 0; s < kTiles; ++s) wmma::fill_fragment(sums[r][s], 0);
  for (int i = 0; i < k; i += kTile) {
#pragma unroll
    for (int s = 0; s < kTiles; ++s)
      wmma::load_matrix_sync(fragments_b[s], b + i * n + column + s * kTile, n);
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      wmma::load_matrix_sync(fragment_a, a + (row + r * kTile) * k + i, k);
#pragma unroll
      for (int s = 0; s < kTiles; ++s)
        wmma::mma_sync(sums[r][s], fragment_a, fragments_b[s], sums[r][s]);
    }
  }
#pragma unroll
  for (int r = 0; r < kTiles; ++r)
#pragma unroll
    for (int s = 0; s < kTiles; ++s)
      wmma::store_matrix_sync(c + (row + r * kTile) * n + column + s * kTile, sums[r][s], n,
                              wmma::mem_row_major);
}

void wmma_warp_tile(Call& call) {
  if (!takes(call, kWarpTile, kWarpTile, kTile)) return;
  launch(call, multiply_002_5, dim3(call.m / kWarpTile, call.n / kWarpTile), 32, 0,
         call.operand_a<half>(), call.operand_b<half>(), call.result<float>(), call.n, call.k);
}

}  // namespace tcgemm::ladder
