// Step 6: a and b in shared memory, and more of k between two barriers. A deeper k-block costs
// shared memory but no registers. A warp has eight rows of c and all of its columns; k is the outer
// loop, so that a fragment of a serves a whole row of fragments of b.
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;
constexpr int kPadding = 4;  // elements after each column

template <int kTile, int kDepth>
__global__ void __launch_bounds__(4 * kTile)
    multiply_001_6(const double* a, const double* b, double* c, int m, int k) {
  extern __shared__ __align__(32) double tile_a[];  // kDepth columns of a, then kTile columns of b
  constexpr int kWarps = kTile / 8, kPitchA = kTile + kPadding, kPitchB = kDepth + kPadding;
  double* tile_b = tile_a + kDepth * kPitchA;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int line = threadIdx.x % kTile, first_column = threadIdx.x / kTile;
  const int row = blockIdx.x * kTile, column = blockIdx.y * kTile;
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::col_major> fragment_a;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fragment_b;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> sums[kTile / 8];
#pragma unroll
  for (int s = 0; s < kTile / 8; ++s) wmma::fill_fragment(sums[s], 0.0);
  for (int first = 0; first < k; first += kDepth) {
#pragma unroll 8
    for (int i = 0; i < kDepth; i += 4)  // four columns of a
      tile_a[line + (i + first_column) * kPitchA] = a[row + line + (first + i + first_column) * m];
#pragma unroll
    for (int s = 0; s < kTile; s += kWarps)  // a warp copies a column of b
#pragma unroll
      for (int i = 0; i < kDepth; i += 32)
        tile_b[i + lane + (s + warp) * kPitchB] = b[first + i + lane + (column + s + warp) * k];
    __syncthreads();
#pragma unroll 2
    for (int i = 0; i < kDepth; i += 4) {
      wmma::load_matrix_sync(fragment_a, tile_a + warp * 8 + i * kPitchA, kPitchA);
#pragma unroll
      for (int s = 0; s < kTile / 8; ++s) {
        wmma::load_matrix_sync(fragment_b, tile_b + i + s * 8 * kPitchB, kPitchB);
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

template <int kTile, int kDepth>
static void launch_depth(Call& call) {
  if (!takes(call, kTile, kTile, kDepth)) return;
  constexpr int kElements = kDepth * (kTile + kPadding) + kTile * (kDepth + kPadding);
  launch(call, multiply_001_6<kTile, kDepth>, dim3(call.m / kTile, call.n / kTile), 4 * kTile,
         kElements * int(sizeof(double)), call.operand_a<double>(), call.operand_b<double>(),
         call.result<double>(), call.m, call.k);
}

template <int kTile>
static void launch_tile(Call& call, int depth) {
  if (depth == 32) return launch_depth<kTile, 32>(call);
  if (depth == 64) return launch_depth<kTile, 64>(call);
  if (depth == 96) return launch_depth<kTile, 96>(call);
  if (depth == 128) return launch_depth<kTile, 128>(call);
  no_such_variant(call);
}

// Parameters: rows and columns of the tile; the k of a k-block.
void f64_shared_ab(Call& call) {
  const int tile = call.parameters[0], depth = call.parameters[1];
  if (tile == 32) return launch_tile<32>(call, depth);
  if (tile == 64) return launch_tile<64>(call, depth);
  if (tile == 96) return launch_tile<96>(call, depth);
  if (tile == 128) return launch_tile<128>(call, depth);
  no_such_variant(call);
}

}  // namespace tcgemm::ladder
