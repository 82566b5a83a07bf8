// Both ideas at once: the copy of the next block of k runs during the products (003_pipeline), and
// ldmatrix reads permuted chunks (003_permuted).
#include <cuda_bf16.h>

#include "lab/launch.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::ladder {

using bf16 = __nv_bfloat16;
// A block has 64x64 of c and takes steps of 64 along k; each of its four warps has 32x32.
constexpr int kBlock = 64, kThreads = 128;

// Where a chunk of 16 bytes of a tile lies: rows of 128 bytes, whose chunks are permuted.
static __device__ int offset(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }

// Starts to copy 64 rows of 64 elements from global to shared memory.
static __device__ void copy(char* tile, const bf16* matrix, int k) {
  const int line = threadIdx.x / 8, chunk = threadIdx.x % 8;
#pragma unroll
  for (int i = 0; i < kBlock; i += kThreads / 8)
    ptx::cp_async(ptx::shared_address(tile) + offset(line + i, chunk),
                  reinterpret_cast<const char*>(matrix + (line + i) * k + chunk * 8));
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
    multiply_003_both(const bf16* a, const bf16* b, float* c, int n, int k, std::int64_t* cycles) {
  __shared__ alignas(128) char tile_a[2][kBlock * 128], tile_b[2][kBlock * 128];
  const std::int64_t start = clock64();
  const int row = blockIdx.y * kBlock, column = blockIdx.x * kBlock;
  float sums[2][4][4] = {};
  copy(tile_a[0], a + row * k, k);
  copy(tile_b[0], b + column * k, k);
  ptx::cp_async_commit();
  for (int first = 0, stage = 0; first < k; first += kBlock, stage ^= 1) {
    if (first + kBlock < k) {
      copy(tile_a[stage ^ 1], a + row * k + first + kBlock, k);
      copy(tile_b[stage ^ 1], b + column * k + first + kBlock, k);
    }
    ptx::cp_async_commit();  // at the end an empty group, so that one group is always behind
    ptx::cp_async_wait<1>();
    __syncthreads();
    multiply(sums, tile_a[stage], tile_b[stage]);
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

void bf16_both(Call& call) {
  if (!takes(call, kBlock, kBlock, kBlock)) return;
  launch(call, multiply_003_both, dim3(call.n / kBlock, call.m / kBlock), kThreads, 0,
         call.operand_a<bf16>(), call.operand_b<bf16>(), call.result<float>(), call.n, call.k,
         call.cycles);
}

}  // namespace tcgemm::ladder
