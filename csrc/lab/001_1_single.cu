// Step 1: one warp multiplies 8x4 by 4x8 in float64 by one WMMA instruction. All matrices are
// column-major, as Fortran has them. Each function is a matter of the whole warp.
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;

__global__ void multiply_001_1(const double* a, const double* b, double* c) {
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::col_major> fragment_a;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sums;
  wmma::fill_fragment(sums, 0.0);
  wmma::load_matrix_sync(fragment_a, a, 8);  // 8: the elements from a column to the next
  wmma::load_matrix_sync(fragment_b, b, 4);
  wmma::mma_sync(sums, fragment_a, fragment_b, sums);
  wmma::store_matrix_sync(c, sums, 8, wmma::mem_col_major);
}

void f64_single(Call& call) {
  if (!takes_at_most(call, 8, 8, 4, 8, 8, 4)) return;
  launch(call, multiply_001_1, 1, 32, 0, call.operand_a<double>(), call.operand_b<double>(),
         call.result<double>());
}

}  // namespace tcgemm::ladder
