// Step 4: a warp multiplies 16x16x16 in its tensor core, float16 with float32 sums (WMMA). A
// fragment is spread over the registers of the warp in an order that only the functions know.
#include <cuda_fp16.h>
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;
constexpr int kTile = 16;

__global__ void multiply_002_4(const half* a, const half* b, float* c, int n, int k) {
  const int row = blockIdx.x * kTile, column = blockIdx.y * kTile;
  wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major> fragment_a;
  wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major> fragment_b;
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> sums;
  wmma::fill_fragment(sums, 0);
  for (int i = 0; i < k; i += kTile) {
    wmma::load_matrix_sync(fragment_a, a + row * k + i, k);
    wmma::load_matrix_sync(fragment_b, b + i * n + column, n);
    wmma::mma_sync(sums, fragment_a, fragment_b, sums);
  }
  wmma::store_matrix_sync(c + row * n + column, sums, n, wmma::mem_row_major);
}

void wmma_tile(Call& call) {
  if (!takes(call, kTile, kTile, kTile)) return;
  launch(call, multiply_002_4, dim3(call.m / kTile, call.n / kTile), 32, 0, call.operand_a<half>(),
         call.operand_b<half>(), call.result<float>(), call.n, call.k);
}

}  // namespace tcgemm::ladder
