// Copy a block of k to shared memory, wait, load fragments by ldmatrix, multiply (bfloat16, float32
// sums). Eight rows of 128 bytes begin in the same bank, so each ldmatrix takes eight times as long
// as it could, and the tensor cores wait for each copy.
#include <cuda_bf16.h>

#include "lab/launch.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::ladder {

using bf16 = __nv_bfloat16;
// A block has 64x64 of c and takes steps of 64 along k; each of its four warps has 32x32.
constexpr int kBlock = 64, kThreads = 128;

// Where a chunk of 16 bytes of a tile lies: rows of 128 bytes, one after the other.
static __device__ int offset(int row, int chunk) { return row * 128 + chunk * 16; }

// 64 rows of 64 elements, from global to shared memory through registers.
static __device__ void copy(char* tile, const bf16* matrix, int k) {
  const int line = threadIdx.x / 8, chunk = threadIdx.x % 8;
#pragma unroll
  for (int i = 0; i < kBlock; i += kThreads / 8)
    *reinterpret_cast<uint4*>(tile + offset(line + i, chunk)) =
        *reinterpret_cast<const uint4*>(matrix + (line + i) * k + chunk * 8);
}

// Adds the product of two tiles: fragments of 16 rows of a and of 16 columns of b, 16 of k.
static __device__ void multiply(float (&sums)[2][4][4], const char* tile_a, const char* tile_b) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / 2 * 32 + lane % 16, column = warp % 2 * 32 + lane % 8 + lane / 16 * 8;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    std::uint32_t fragments_a[2][4], fragments_b[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int chunk_a = 2 * step + lane / 16, chunk_b = 2 * step + lane / 8 % 2;
      ptx::ldmatrix_x4<false>(fragments_a[i],
                              ptx::shared_address(tile_a) + offset(row + 16 * i, chunk_a));
      ptx::ldmatrix_x4<false>(fragments_b[i],
                              ptx::shared_address(tile_b) + offset(column + 16 * i, chunk_b));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        ptx::mma_sync<DType::bf16, DType::bf16>(sums[i][j], fragments_a[i],
                                                &fragments_b[j / 2][j % 2 * 2]);
  }
}

// a is row-major, b column-major, c row-major.
__global__ void __launch_bounds__(kThreads, 4)
    multiply_003_baseline(const bf16* a, const bf16* b, float* c, int n, int k,
                          std::int64_t* cycles) {
  __shared__ alignas(128) char tile_a[kBlock * 128], tile_b[kBlock * 128];
  const std::int64_t start = clock64();
  const int row = blockIdx.y * kBlock, column = blockIdx.x * kBlock;
  float sums[2][4][4] = {};
  for (int first = 0; first < k; first += kBlock) {
    copy(tile_a, a + row * k + first, k);
    copy(tile_b, b + column * k + first, k);
    __syncthreads();
    multiply(sums, tile_a, tile_b);
    __syncthreads();
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  c += (row + warp / 2 * 32 + lane / 4) * n + column + warp % 2 * 32 + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(c + (16 * i + 8 * half) * n + 8 * j) =
            make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
  if (cycles && threadIdx.x == 0) cycles[blockIdx.y * gridDim.x + blockIdx.x] = clock64() - start;
}

void bf16_baseline(Call& call) {
  if (!takes(call, kBlock, kBlock, kBlock)) return;
  launch(call, multiply_003_baseline, dim3(call.n / kBlock, call.m / kBlock), kThreads, 0,
         call.operand_a<bf16>(), call.operand_b<bf16>(), call.result<float>(), call.n, call.k,
         call.cycles);
}

}  // namespace tcgemm::ladder
