// Step 2: a thread computes eight rows of a column, so that an element of b, once it is in a
// register, serves eight products: nine loads from shared memory for eight products, not sixteen.
#include "lab/launch.cuh"

namespace tcgemm::ladder {

constexpr int kBlock = 32, kRows = 8, kThreads = kBlock * kBlock / kRows;

__global__ void multiply_002_2(const float* a, const float* b, float* c, int n, int k) {
  __shared__ float tile_a[kBlock][kBlock], tile_b[kBlock][kBlock];
  const int row = blockIdx.x * kBlock, column = blockIdx.y * kBlock;
  const int thread = threadIdx.y * (kBlock / kRows) + threadIdx.x;
  const int line = thread / kBlock, element = thread % kBlock;  // that this thread copies first
  const int own_row = threadIdx.x * kRows, own_column = threadIdx.y;
  float sums[kRows] = {};
  for (int first = 0; first < k; first += kBlock) {
#pragma unroll
    for (int i = 0; i < kBlock; i += kThreads / kBlock) {
      tile_a[line + i][element] = a[(row + line + i) * k + first + element];
      tile_b[line + i][element] = b[(first + line + i) * n + column + element];
    }
    __syncthreads();
    for (int i = 0; i < kBlock; ++i) {
      const float value_b = tile_b[i][own_column];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] += tile_a[own_row + r][i] * value_b;
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) c[(row + own_row + r) * n + column + own_column] = sums[r];
}

void thread_tile(Call& call) {
  if (!takes(call, kBlock, kBlock, kBlock)) return;
  launch(call, multiply_002_2, dim3(call.m / kBlock, call.n / kBlock), dim3(kBlock / kRows, kBlock),
         0, call.operand_a<float>(), call.operand_b<float>(), call.result<float>(), call.n, call.k);
}

}  // namespace tcgemm::ladder
