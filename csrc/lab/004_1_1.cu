// The same with 2x2 tiles a warp: a fragment of b serves two tiles, and a block of 64x64 loads half
// as many bytes for each product.
#include <cuda_fp16.h>

#include "lab/launch.cuh"
#include "ptx/mma_sync.cuh"

namespace tcgemm::ladder {

// Eight warps, 2 x 4, each with 2x2 tiles of 16x8.
constexpr int kTilesM = 2, kTilesN = 2, kBlockM = 32 * kTilesM, kBlockN = 32 * kTilesN;
constexpr int kBlockK = 16, kThreads = 256;

// Two adjacent elements along k: a register of a fragment.
static __device__ std::uint32_t pair(const half* elements) {
  return *reinterpret_cast<const std::uint32_t*>(elements);
}

// a is row-major, b column-major, c row-major.
__global__ void __launch_bounds__(kThreads)
    multiply_004_1_1(const half* a, const half* b, float* c, int n, int k) {
  __shared__ alignas(16) half tile_a[kBlockM][kBlockK], tile_b[kBlockN][kBlockK];
  const int row = blockIdx.y * kBlockM, column = blockIdx.x * kBlockN;
  const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int own_row = warp / 4 * 16 * kTilesM, own_column = warp % 4 * 8 * kTilesN;
  float sums[kTilesM][kTilesN][4] = {};
  for (int first = 0; first < k; first += kBlockK) {
    const int line = threadIdx.x / kBlockK, element = threadIdx.x % kBlockK;
#pragma unroll
    for (int i = 0; i < kBlockM; i += kThreads / kBlockK)
      tile_a[line + i][element] = a[(row + line + i) * k + first + element];
#pragma unroll
    for (int i = 0; i < kBlockN; i += kThreads / kBlockK)
      tile_b[line + i][element] = b[(column + line + i) * k + first + element];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) {
      const half* line_b = tile_b[own_column + 8 * j + group];
      const std::uint32_t fragment_b[2] = {pair(line_b + 2 * t), pair(line_b + 2 * t + 8)};
#pragma unroll
      for (int i = 0; i < kTilesM; ++i) {
        const half* upper = tile_a[own_row + 16 * i + group];
        const half* lower = tile_a[own_row + 16 * i + group + 8];
        const std::uint32_t fragment_a[4] = {pair(upper + 2 * t), pair(lower + 2 * t),
                                             pair(upper + 2 * t + 8), pair(lower + 2 * t + 8)};
        ptx::mma_sync<DType::f16, DType::f16>(sums[i][j], fragment_a, fragment_b);
      }
    }
    __syncthreads();
  }
  c += (row + own_row + group) * n + column + own_column + 2 * t;
#pragma unroll
  for (int i = 0; i < kTilesM; ++i)
#pragma unroll
    for (int j = 0; j < kTilesN; ++j)
#pragma unroll
      for (int part = 0; part < 2; ++part)
        *reinterpret_cast<float2*>(c + (16 * i + 8 * part) * n + 8 * j) =
            make_float2(sums[i][j][2 * part], sums[i][j][2 * part + 1]);
}

void mma_tiles(Call& call) {
  if (!takes(call, kBlockM, kBlockN, 32)) return;
  launch(call, multiply_004_1_1, dim3(call.n / kBlockN, call.m / kBlockM), kThreads, 0,
         call.operand_a<half>(), call.operand_b<half>(), call.result<float>(), call.n, call.k);
}

}  // namespace tcgemm::ladder
