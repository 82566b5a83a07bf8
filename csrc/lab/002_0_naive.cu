// Step 0: a thread computes one element of c, straight from global memory (float32, row-major).
// A warp has 32 rows and one column, so each load of a touches 32 rows of memory. The twin swaps x
// and y: then the threads of a warp read adjacent elements of b, and all of them one element of a.
#include "lab/launch.cuh"

namespace tcgemm::ladder {

constexpr int kBlock = 32;

template <bool kSwapped>
__global__ void multiply_002_0(const float* a, const float* b, float* c, int n, int k) {
  const int x = blockIdx.x * kBlock + threadIdx.x, y = blockIdx.y * kBlock + threadIdx.y;
  const int row = kSwapped ? y : x, column = kSwapped ? x : y;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

// Parameter 0: 1 swaps x and y.
void naive(Call& call) {
  if (!takes(call, kBlock, kBlock, 1)) return;
  const bool swapped = call.parameters[0];
  const dim3 block(kBlock, kBlock), rows_in_x(call.m / kBlock, call.n / kBlock);
  launch(call, swapped ? multiply_002_0<true> : multiply_002_0<false>,
         swapped ? dim3(rows_in_x.y, rows_in_x.x) : rows_in_x, block, 0, call.operand_a<float>(),
         call.operand_b<float>(), call.result<float>(), call.n, call.k);
}

}  // namespace tcgemm::ladder
