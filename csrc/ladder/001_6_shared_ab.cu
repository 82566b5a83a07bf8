// Step 6: a and b in shared memory, and more of k between two barriers. A deeper k-block costs
// shared memory but no registers. A warp has eight rows of c and all of its columns; k is the outer
// loop, so that a fragment of a serves a whole row of fragments of b.
#include <mma.h>

#include "ladder/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;
constexpr int kPadding = 4;  // elements after each column

template <int kTile>
__global__ void __launch_bounds__(4 * kTile)
    multiply_001_6(const double* a, const double* b, double* c, int m, int k, int tile_k) {
  extern __shared__ __align__(32) double tile_a[];  // tile_k columns of a, then kTile columns of b
  const int warps = kTile / 8, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int pitch_a = kTile + kPadding, pitch_b = tile_k + kPadding;
  double* tile_b = tile_a + tile_k * pitch_a;
  const int row = blockIdx.x * kTile, column = blockIdx.y * kTile;
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::col_major> fragment_a;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sums[kTile / 8];
#pragma unroll
  for (int s = 0; s < kTile / 8; ++s) wmma::fill_fragment(sums[s], 0.0);
  for (int first = 0; first < k; first += tile_k) {
#pragma unroll 4
    for (int i = threadIdx.x; i < kTile * tile_k; i += 4 * kTile)
      tile_a[i % kTile + i / kTile * pitch_a] = a[row + i % kTile + (first + i / kTile) * m];
    for (int s = warp; s < kTile; s += warps)  // a warp copies a column of b
#pragma unroll 4
      for (int i = lane; i < tile_k; i += 32)
        tile_b[i + s * pitch_b] = b[first + i + (column + s) * k];
    __syncthreads();
    for (int i = 0; i < tile_k; i += 4) {
      wmma::load_matrix_sync(fragment_a, tile_a + warp * 8 + i * pitch_a, pitch_a);
#pragma unroll
      for (int s = 0; s < kTile / 8; ++s) {
        wmma::load_matrix_sync(fragment_b, tile_b + i + s * 8 * pitch_b, pitch_b);
        wmma::mma_sync(sums[s], fragment_a, fragment_b, sums[s]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int s = 0; s < kTile / 8; ++s)
    wmma::store_matrix_sync(c + row + warp * 8 + (column + s * 8) * m, sums[s], m,
                            wmma::mem_col_major);
}

template <int kTile>
static void launch_tile(Call& call, int tile_k) {
  if (!takes(call, kTile, kTile, tile_k)) return;
  const int elements = tile_k * (kTile + kPadding) + kTile * (tile_k + kPadding);
  launch(call, multiply_001_6<kTile>, dim3(call.m / kTile, call.n / kTile), 4 * kTile,
         elements * int(sizeof(double)), call.operand_a<double>(), call.operand_b<double>(),
         call.result<double>(), call.m, call.k, tile_k);
}

// Parameters: rows and columns of the tile; the k of a k-block.
void f64_shared_ab(Call& call) {
  const int tile = call.parameters[0], tile_k = call.parameters[1];
  if (tile_k < 32 || tile_k > 128 || tile_k % 32 != 0) return no_such_variant(call);
  if (tile == 32) return launch_tile<32>(call, tile_k);
  if (tile == 64) return launch_tile<64>(call, tile_k);
  if (tile == 96) return launch_tile<96>(call, tile_k);
  if (tile == 128) return launch_tile<128>(call, tile_k);
  no_such_variant(call);
}

}  // namespace tcgemm::ladder
