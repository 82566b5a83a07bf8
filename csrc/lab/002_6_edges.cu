// Step 6: any M, N and K. A 16x16 piece that lies within its matrix is loaded as in step 5. A piece
// at an edge goes through shared memory, where zeros stand for what the matrix lacks, and so does a
// piece whose rows WMMA cannot address, because their pitch is no multiple of 16 bytes.
#include <cuda_fp16.h>
#include <mma.h>

#include "lab/launch.cuh"

namespace tcgemm::ladder {

using namespace nvcuda;
constexpr int kTile = 16, kTiles = 4, kWarpTile = kTile * kTiles;

static __device__ bool is_whole(int row, int column, int rows, int columns) {
  return row + kTile <= rows && column + kTile <= columns && columns % 8 == 0;
}

template <typename Fragment>
static __device__ void load_piece(Fragment& fragment, const half* matrix, half* piece, int row,
                                  int column, int rows, int columns) {
  if (is_whole(row, column, rows, columns)) {
    wmma::load_matrix_sync(fragment, matrix + row * columns + column, columns);
    return;
  }
  for (int i = threadIdx.x; i < kTile * kTile; i += 32) {
    const int r = row + i / kTile, s = column + i % kTile;
    piece[i] = r < rows && s < columns ? matrix[r * columns + s] : half(0);
  }
  __syncwarp();
  wmma::load_matrix_sync(fragment, piece, kTile);
  __syncwarp();  // the piece may be overwritten
}

template <typename Fragment>
static __device__ void store_piece(const Fragment& fragment, float* matrix, float* piece, int row,
                                   int column, int rows, int columns) {
  if (is_whole(row, column, rows, columns)) {
    wmma::store_matrix_sync(matrix + row * columns + column, fragment, columns,
                            wmma::mem_row_major);
    return;
  }
  wmma::store_matrix_sync(piece, fragment, kTile, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < kTile * kTile; i += 32) {
    const int r = row + i / kTile, s = column + i % kTile;
    if (r < rows && s < columns) matrix[r * columns + s] = piece[i];
  }
  __syncwarp();
}

__global__ void multiply_002_6(const half* a, const half* b, float* c, int m, int n, int k) {
  __shared__ alignas(32) half piece[kTile * kTile];
  __shared__ alignas(32) float piece_c[kTile * kTile];
  const int row = blockIdx.x * kWarpTile, column = blockIdx.y * kWarpTile;
  wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major> fragment_a;
  wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major> fragments_b[kTiles];
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> sums[kTiles][kTiles];
#pragma unroll
  for (int r = 0; r < kTiles; ++r)
#pragma unroll
    for (int s = 0; s < kTiles; ++s) wmma::fill_fragment(sums[r][s], 0);
  for (int i = 0; i < k; i += kTile) {
#pragma unroll
    for (int s = 0; s < kTiles; ++s)
      load_piece(fragments_b[s], b, piece, i, column + s * kTile, k, n);
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      load_piece(fragment_a, a, piece, row + r * kTile, i, m, k);
#pragma unroll
      for (int s = 0; s < kTiles; ++s)
        wmma::mma_sync(sums[r][s], fragment_a, fragments_b[s], sums[r][s]);
    }
  }
#pragma unroll
  for (int r = 0; r < kTiles; ++r)
#pragma unroll
    for (int s = 0; s < kTiles; ++s)
      store_piece(sums[r][s], c, piece_c, row + r * kTile, column + s * kTile, m, n);
}

void wmma_edges(Call& call) {
  if (!takes(call, 1, 1, 1)) return;
  const dim3 grid((call.m + kWarpTile - 1) / kWarpTile, (call.n + kWarpTile - 1) / kWarpTile);
  launch(call, multiply_002_6, grid, 32, 0, call.operand_a<half>(), call.operand_b<half>(),
         call.result<float>(), call.m, call.n, call.k);
}

}  // namespace tcgemm::ladder
