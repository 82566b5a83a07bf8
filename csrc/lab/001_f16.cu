// The shapes of WMMA for float16: 16x16x16, 32x8x16 and 8x32x16, with float32 or float16 sums. The
// loop and the column-major matrices are as in 001_3_blocks.
#include <cuda_fp16.h>
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;
constexpr int kDepth = 16;

template <int kRows, int kColumns, typename Sum>
__global__ void multiply_001_f16(const half* a, const half* b, Sum* c, int m, int k) {
  const int row = blockIdx.x * kRows, column = blockIdx.y * kColumns;
  wmma::fragment<wmma::matrix_a, kRows, kColumns, kDepth, half, wmma::col_major> fragment_a;
  wmma::fragment<wmma::matrix_b, kRows, kColumns, kDepth, half, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, kRows, kColumns, kDepth, Sum> sums;
  wmma::fill_fragment(sums, Sum(0));
  for (int i = 0; i < k; i += kDepth) {
    wmma::load_matrix_sync(fragment_a, a + row + i * m, m);
    wmma::load_matrix_sync(fragment_b, b + i + column * k, k);
    wmma::mma_sync(sums, fragment_a, fragment_b, sums);
  }
  wmma::store_matrix_sync(c + row + column * m, sums, m, wmma::mem_col_major);
}

template <int kRows, int kColumns, typename Sum>
static void launch_shape(Call& call) {
  if (!takes(call, kRows, kColumns, kDepth)) return;
  launch(call, multiply_001_f16<kRows, kColumns, Sum>, dim3(call.m / kRows, call.n / kColumns), 32,
         0, call.operand_a<half>(), call.operand_b<half>(), call.result<Sum>(), call.m, call.k);
}

// Parameters: rows of the shape; bits of the sums.
void wmma_f16(Call& call) {
  const int rows = call.parameters[0];
  const bool wide = call.parameters[1] == 32;
  if (!wide && call.parameters[1] != 16) return no_such_variant(call);
  if (rows == 16)
    return wide ? launch_shape<16, 16, float>(call) : launch_shape<16, 16, half>(call);
  if (rows == 32) return wide ? launch_shape<32, 8, float>(call) : launch_shape<32, 8, half>(call);
  if (rows == 8) return wide ? launch_shape<8, 32, float>(call) : launch_shape<8, 32, half>(call);
  no_such_variant(call);
}

}  // namespace tcgemm::ladder
