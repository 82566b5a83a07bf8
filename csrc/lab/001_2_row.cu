// Step 2: a loop over k. The sums stay in the fragment, and each step of four adds to them.
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;

__global__ void multiply_001_2(const double* a, const double* b, double* c, int k) {
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::col_major> fragment_a;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sums;
  wmma::fill_fragment(sums, 0.0);
  for (int i = 0; i < k; i += 4) {
    wmma::load_matrix_sync(fragment_a, a + i * 8, 8);
    wmma::load_matrix_sync(fragment_b, b + i, k);
    wmma::mma_sync(sums, fragment_a, fragment_b, sums);
  }
  wmma::store_matrix_sync(c, sums, 8, wmma::mem_col_major);
}

void f64_row(Call& call) {
  if (!takes_at_most(call, 8, 8, 4, 8, 8, 0)) return;
  launch(call, multiply_001_2, 1, 32, 0, call.operand_a<double>(), call.operand_b<double>(),
         call.result<double>(), call.k);
}

}  // namespace tcgemm::ladder
