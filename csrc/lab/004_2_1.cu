// Fragments of a are kept in registers for both columns of tiles: three ldmatrix for four products,
// not five.
#include <cuda_fp16.h>

#include "lab/launch.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::ladder {

// Eight warps, 2 x 4, each with 2x2 tiles of 16x8.
constexpr int kTilesM = 2, kTilesN = 2, kBlock = 64, kBlockK = 32, kThreads = 256;

// Where a chunk of 16 bytes of a tile lies: rows of 64 bytes, two of them in a line of 128, whose
// chunks are permuted so that eight rows of one chunk lie in all 32 banks.
static __device__ int offset(int row, int chunk) { return row * 64 + (chunk ^ row / 2 % 4) * 16; }

// a is row-major, b column-major, c row-major.
__global__ void __launch_bounds__(kThreads)
    multiply_004_2_1(const half* a, const half* b, float* c, int n, int k) {
  __shared__ alignas(128) char tile_a[kBlock * 64], tile_b[kBlock * 64];
  const std::uint32_t shared_a = ptx::shared_address(tile_a),
                      shared_b = ptx::shared_address(tile_b);
  const int row = blockIdx.y * kBlock, column = blockIdx.x * kBlock;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int own_row = warp / 4 * 16 * kTilesM, own_column = warp % 4 * 8 * kTilesN;
  const int line_a = own_row + lane % 16, line_b = own_column + lane % 8 + lane / 16 * 8;
  const int line = threadIdx.x / 4, chunk = threadIdx.x % 4;  // that this thread copies
  float sums[kTilesM][kTilesN][4] = {};
#pragma unroll 4
  for (int first = 0; first < k; first += kBlockK) {
    *reinterpret_cast<uint4*>(tile_a + offset(line, chunk)) =
        *reinterpret_cast<const uint4*>(a + (row + line) * k + first + chunk * 8);
    *reinterpret_cast<uint4*>(tile_b + offset(line, chunk)) =
        *reinterpret_cast<const uint4*>(b + (column + line) * k + first + chunk * 8);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kBlockK / 16; ++step) {
      std::uint32_t fragments_a[kTilesM][4], fragments_b[2 * kTilesN];
#pragma unroll
      for (int i = 0; i < kTilesM; ++i)
        ptx::ldmatrix_x4<false>(fragments_a[i],
                                shared_a + offset(line_a + 16 * i, 2 * step + lane / 16));
      ptx::ldmatrix_x4<false>(fragments_b, shared_b + offset(line_b, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int j = 0; j < kTilesN; ++j)
#pragma unroll
        for (int i = 0; i < kTilesM; ++i)
          ptx::mma_sync<DType::f16, DType::f16>(sums[i][j], fragments_a[i], &fragments_b[2 * j]);
    }
    __syncthreads();
  }
  c += (row + own_row + lane / 4) * n + column + own_column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kTilesM; ++i)
#pragma unroll
    for (int j = 0; j < kTilesN; ++j)
#pragma unroll
      for (int part = 0; part < 2; ++part)
        *reinterpret_cast<float2*>(c + (16 * i + 8 * part) * n + 8 * j) =
            make_float2(sums[i][j][2 * part], sums[i][j][2 * part + 1]);
}

void mma_fragments_kept(Call& call) {
  if (!takes(call, kBlock, kBlock, kBlockK)) return;
  launch(call, multiply_004_2_1, dim3(call.n / kBlock, call.m / kBlock), kThreads, 0,
         call.operand_a<half>(), call.operand_b<half>(), call.result<float>(), call.n, call.k);
}

}  // namespace tcgemm::ladder
