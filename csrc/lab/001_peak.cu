// The rate without memory: a warp loads one tile of a and b, and multiplies it again and again, so
// that c = repeats * a @ b. The twin has the larger instruction that came with sm_90.
#include <mma.h>

#include "lab/launch.cuh"
#include "ptx/device_arch.cuh"
#include "ptx/mma_f64.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;
constexpr int kWarps = 8;  // of a block, one below the other in c

__global__ void multiply_001_peak(const double* a, const double* b, double* c, int m, int repeats) {
  const int row = (blockIdx.x * kWarps + threadIdx.x / 32) * 8, column = blockIdx.y * 8;
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::col_major> fragment_a;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sums;
  wmma::fill_fragment(sums, 0.0);
  wmma::load_matrix_sync(fragment_a, a + row, m);
  wmma::load_matrix_sync(fragment_b, b + column * 4, 4);
  for (int i = 0; i < repeats; ++i) wmma::mma_sync(sums, fragment_a, fragment_b, sums);
  wmma::store_matrix_sync(c + row + column * m, sums, m, wmma::mem_col_major);
}

// m16n8k16; ptx/mma_f64.cuh says which element a lane has.
__global__ void multiply_001_peak_sm90(const double* a, const double* b, double* c, int m,
                                       int repeats) {
  if constexpr (ptx::kArch >= 90) {
    const int row = (blockIdx.x * kWarps + threadIdx.x / 32) * 16, column = blockIdx.y * 8;
    const int group = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    double fragment_a[8], fragment_b[4], sums[4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      fragment_a[2 * j] = a[row + group + (t + 4 * j) * m];
      fragment_a[2 * j + 1] = a[row + group + 8 + (t + 4 * j) * m];
      fragment_b[j] = b[t + 4 * j + (column + group) * 16];
    }
    for (int i = 0; i < repeats; ++i) ptx::mma_f64(sums, fragment_a, fragment_b);
#pragma unroll
    for (int i = 0; i < 4; ++i) c[row + group + i / 2 * 8 + (column + 2 * t + i % 2) * m] = sums[i];
  }
}

// Parameters: k of the instruction, 4 or 16; the repeats.
void f64_peak(Call& call) {
  const int k = call.parameters[0], rows = k == 16 ? 16 : 8, repeats = call.parameters[1];
  if ((k != 4 && k != 16) || repeats < 1) return no_such_variant(call);
  if (!takes_at_most(call, rows * kWarps, 8, k, 0, 0, k)) return;
  if (k == 16 && !has_capability(call, 9)) return;
  launch(call, k == 16 ? multiply_001_peak_sm90 : multiply_001_peak,
         dim3(call.m / (rows * kWarps), call.n / 8), 32 * kWarps, 0, call.operand_a<double>(),
         call.operand_b<double>(), call.result<double>(), call.m, repeats);
}

}  // namespace tcgemm::ladder
