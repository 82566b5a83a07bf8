// Step 4: a block of four warps with a 16x16 tile of c. Two warps read the same rows of a, and two
// the same columns of b, so that the second read comes from the cache.
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;

__global__ void multiply_001_4(const double* a, const double* b, double* c, int m, int k) {
  const int row = blockIdx.x * 16 + threadIdx.x / 32 * 8;
  const int column = blockIdx.y * 16 + threadIdx.y * 8;
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

void f64_tile(Call& call) {
  if (!takes(call, 16, 16, 4)) return;
  launch(call, multiply_001_4, dim3(call.m / 16, call.n / 16), dim3(64, 2), 0,
         call.operand_a<double>(), call.operand_b<double>(), call.result<double>(), call.m, call.k);
}

}  // namespace tcgemm::ladder
