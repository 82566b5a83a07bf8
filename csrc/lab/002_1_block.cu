// Step 1: a block computes 16x16 elements from tiles in shared memory, so that each element of a
// and b is loaded once a block and not once a thread.
#include "lab/launch.cuh"

namespace tcgemm::ladder {

constexpr int kBlock = 16;

__global__ void multiply_002_1(const float* a, const float* b, float* c, int n, int k) {
  __shared__ float tile_a[kBlock][kBlock], tile_b[kBlock][kBlock];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.x * kBlock, column = blockIdx.y * kBlock;
  float sum = 0;
  for (int first = 0; first < k; first += kBlock) {
    tile_a[y][x] = a[(row + y) * k + first + x];
    tile_b[y][x] = b[(first + y) * n + column + x];
    __syncthreads();  // the tiles are complete
    for (int i = 0; i < kBlock; ++i) sum += tile_a[x][i] * tile_b[i][y];
    __syncthreads();  // the tiles have been read
  }
  c[(row + x) * n + column + y] = sum;
}

void block_tile(Call& call) {
  if (!takes(call, kBlock, kBlock, kBlock)) return;
  launch(call, multiply_002_1, dim3(call.m / kBlock, call.n / kBlock), dim3(kBlock, kBlock), 0,
         call.operand_a<float>(), call.operand_b<float>(), call.result<float>(), call.n, call.k);
}

}  // namespace tcgemm::ladder
