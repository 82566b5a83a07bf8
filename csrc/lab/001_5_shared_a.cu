// Step 5: the warps of a block share four columns of a in shared memory. Padding after each column
// moves the next one to other banks: without it the four columns of a fragment collide. A warp
// loads its own four rows of b from global memory, and has all rows of eight columns of c.
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;

template <int kTile>  // rows and columns of the block's tile: kTile / 8 warps
__global__ void __launch_bounds__(4 * kTile)
    multiply_001_5(const double* a, const double* b, double* c, int m, int k, int pitch) {
  extern __shared__ __align__(32) double tile_a[];  // 4 columns of `pitch` elements
  const int thread = threadIdx.x, warp = thread / 32;
  const int row = blockIdx.x * kTile, column = blockIdx.y * kTile + warp * 8;
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::col_major> fragment_a;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sums[kTile / 8];
#pragma unroll
  for (int r = 0; r < kTile / 8; ++r) wmma::fill_fragment(sums[r], 0.0);
  for (int i = 0; i < k; i += 4) {
    // 4 kTile threads copy one element each.
    tile_a[thread % kTile + thread / kTile * pitch] =
        a[row + thread % kTile + (i + thread / kTile) * m];
    __syncthreads();
    wmma::load_matrix_sync(fragment_b, b + i + column * k, k);
#pragma unroll
    for (int r = 0; r < kTile / 8; ++r) {
      wmma::load_matrix_sync(fragment_a, tile_a + r * 8, pitch);
      wmma::mma_sync(sums[r], fragment_a, fragment_b, sums[r]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kTile / 8; ++r)
    wmma::store_matrix_sync(c + row + r * 8 + column * m, sums[r], m, wmma::mem_col_major);
}

template <int kTile>
static void launch_tile(Call& call, int padding) {
  if (!takes(call, kTile, kTile, 4)) return;
  const int pitch = kTile + padding;
  launch(call, multiply_001_5<kTile>, dim3(call.m / kTile, call.n / kTile), 4 * kTile,
         4 * pitch * int(sizeof(double)), call.operand_a<double>(), call.operand_b<double>(),
         call.result<double>(), call.m, call.k, pitch);
}

// Parameters: rows of the tile; elements of padding, a multiple of two for WMMA.
void f64_shared_a(Call& call) {
  const int tile = call.parameters[0], padding = call.parameters[1];
  if (padding < 0 || padding > 6 || padding % 2 != 0) return no_such_variant(call);
  if (tile == 32) return launch_tile<32>(call, padding);
  if (tile == 64) return launch_tile<64>(call, padding);
  if (tile == 96) return launch_tile<96>(call, padding);
  if (tile == 128) return launch_tile<128>(call, padding);
  no_such_variant(call);
}

}  // namespace tcgemm::ladder
