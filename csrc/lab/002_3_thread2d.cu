// Step 3: a thread computes 8x8 elements, so that elements of a and of b are both reused from
// registers: 16 loads from shared memory for 64 products.
#include "lab/launch.cuh"

namespace tcgemm::ladder {

constexpr int kBlock = 64, kTile = 8;

__global__ void multiply_002_3(const float* a, const float* b, float* c, int n, int k) {
  __shared__ float tile_a[kBlock][kBlock], tile_b[kBlock][kBlock];
  const int row = blockIdx.x * kBlock, column = blockIdx.y * kBlock;
  const int element = threadIdx.y * (kBlock / kTile) + threadIdx.x;  // of each row, for the copies
  const int own_row = threadIdx.x * kTile, own_column = threadIdx.y * kTile;
  float sums[kTile][kTile] = {};
  for (int first = 0; first < k; first += kBlock) {
#pragma unroll 8
    for (int i = 0; i < kBlock; ++i) {
      tile_a[i][element] = a[(row + i) * k + first + element];
      tile_b[i][element] = b[(first + i) * n + column + element];
    }
    __syncthreads();
    for (int i = 0; i < kBlock; ++i) {
      float values_b[kTile];
#pragma unroll
      for (int s = 0; s < kTile; ++s) values_b[s] = tile_b[i][own_column + s];
#pragma unroll
      for (int r = 0; r < kTile; ++r) {
        const float value_a = tile_a[own_row + r][i];
#pragma unroll
        for (int s = 0; s < kTile; ++s) sums[r][s] += value_a * values_b[s];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kTile; ++r)
#pragma unroll
    for (int s = 0; s < kTile; ++s)
      c[(row + own_row + r) * n + column + own_column + s] = sums[r][s];
}

void thread_tile_2d(Call& call) {
  if (!takes(call, kBlock, kBlock, kBlock)) return;
  launch(call, multiply_002_3, dim3(call.m / kBlock, call.n / kBlock),
         dim3(kBlock / kTile, kBlock / kTile), 0, call.operand_a<float>(), call.operand_b<float>(),
         call.result<float>(), call.n, call.k);
}

}  // namespace tcgemm::ladder
