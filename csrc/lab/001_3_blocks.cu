// Step 3: many blocks of one warp, each with an 8x8 tile of c.
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;

__global__ void multiply_001_3(const double* a, const double* b, double* c, int m, int k) {
  const int row = blockIdx.x * 8, column = blockIdx.y * 8;
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::col_major> fragment_a;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sums;
  wmma::fill_fragment(sums, 0.0);
  for (int i = 0; i < k; i += 4) {
    wmma::load_matrix_sync(fragment_a, a + row + i * m, m);
    wmma::load_matrix_sync(fragment_b, b + i + column * k, k);
    wmma::mma_sync(sums, fragment_a, fragment_b, sums);
  }
  wmma::store_matrix_sync(c + row + column * m, sums, m, wmma::mem_col_major);
}

void f64_blocks(Call& call) {
  if (!takes(call, 8, 8, 4)) return;
  launch(call, multiply_001_3, dim3(call.m / 8, call.n / 8), 32, 0, call.operand_a<double>(),
         call.operand_b<double>(), call.result<double>(), call.m, call.k);
}

}  // namespace tcgemm::ladder
