// The shape of WMMA for TF32, 16x16x8. The tensor cores read 19 bits of a float32; without the
// conversion they would cut the others off, and the error would be larger than the error of
// rounding.
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;
using wmma::precision::tf32;

template <typename Fragment>
static __device__ void round_to_tf32(Fragment& fragment) {
#pragma unroll
  for (int i = 0; i < fragment.num_elements; ++i)
    fragment.x[i] = wmma::__float_to_tf32(fragment.x[i]);
}

__global__ void multiply_001_tf32(const float* a, const float* b, float* c, int m, int k) {
  const int row = blockIdx.x * 16, column = blockIdx.y * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 8, tf32, wmma::col_major> fragment_a;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, tf32, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums;
  wmma::fill_fragment(sums, 0);
  for (int i = 0; i < k; i += 8) {
    wmma::load_matrix_sync(fragment_a, a + row + i * m, m);
    wmma::load_matrix_sync(fragment_b, b + i + column * k, k);
    round_to_tf32(fragment_a);
    round_to_tf32(fragment_b);
    wmma::mma_sync(sums, fragment_a, fragment_b, sums);
  }
  wmma::store_matrix_sync(c + row + column * m, sums, m, wmma::mem_col_major);
}

void wmma_tf32(Call& call) {
  if (!takes(call, 16, 16, 8)) return;
  launch(call, multiply_001_tf32, dim3(call.m / 16, call.n / 16), 32, 0, call.operand_a<float>(),
         call.operand_b<float>(), call.result<float>(), call.m, call.k);
}

}  // namespace tcgemm::ladder
