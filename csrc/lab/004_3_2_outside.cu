// The sums leave the tensor core after each block of k, and float32 additions accumulate them: the
// tensor core cuts its float32 sums (or rounds float16 sums), and an addition rounds to nearest.
#include <cuda_fp16.h>

#include "lab/launch.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::ladder {

// Eight warps, 2 x 4, each with 4x4 tiles of 16x8.
constexpr int kTilesM = 4, kTilesN = 4, kBlock = 128, kBlockK = 32, kTileBytes = kBlock * 64;
constexpr int kThreads = 256, kStages = 3;

// Where a chunk of 16 bytes lies in rows of 64 bytes: permuted, so that eight rows do not collide.
static __device__ int offset(int row, int chunk) { return row * 64 + (chunk ^ row / 2 % 4) * 16; }

// Starts to copy kBlock rows of 32 elements, from what this thread copies of the first ones.
static __device__ void copy(std::uint32_t tile, const half* first, int k) {
#pragma unroll
  for (int i = 0; i < kBlock; i += kThreads / 4)
    ptx::cp_async(tile + i * 64, reinterpret_cast<const char*>(first + i * k));
}

// The sums of one k-block leave the tensor core: float32 as they are, float16 in pairs.
static __device__ void add(float* sums, const float* partial) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] += partial[i];
}
static __device__ void add(float* sums, const std::uint32_t* partial) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 two = __half22float2(reinterpret_cast<const half2*>(partial)[i]);
    sums[2 * i] += two.x;
    sums[2 * i + 1] += two.y;
  }
}

// a is row-major, b column-major, c row-major.
template <typename Partial>
__global__ void __launch_bounds__(kThreads)
    multiply_004_3_2_outside(const half* a, const half* b, float* c, int n, int k) {
  extern __shared__ __align__(128) char stages[];  // of each stage: a tile of a, then one of b
  const std::uint32_t shared = ptx::shared_address(stages);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int own_row = warp / 4 * 16 * kTilesM, own_column = warp % 4 * 8 * kTilesN;
  const int line_a = own_row + lane % 16, line_b = own_column + lane % 8 + lane / 16 * 8;
  const int row = blockIdx.y * kBlock, column = blockIdx.x * kBlock, blocks = k / kBlockK;
  float sums[kTilesM][kTilesN][4] = {};
  const int line = threadIdx.x / 4, chunk = threadIdx.x % 4;  // that this thread copies first
  const half* next_a = a + (row + line) * k + chunk * 8;
  const half* next_b = b + (column + line) * k + chunk * 8;
  const auto fill = [&](int block, int stage) {  // an empty group beyond the end: groups count
    if (block < blocks) {
      const std::uint32_t tile = shared + stage * 2 * kTileBytes + offset(line, chunk);
      copy(tile, next_a, k);
      copy(tile + kTileBytes, next_b, k);
      next_a += kBlockK;
      next_b += kBlockK;
    }
    ptx::cp_async_commit();
  };
  for (int block = 0; block < kStages - 1; ++block) fill(block, block);
  for (int block = 0, stage = 0; block < blocks; ++block) {
    ptx::cp_async_wait<kStages - 2>();
    __syncthreads();  // this block has arrived, and all warps have read the one before it
    fill(block + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
    const std::uint32_t tile_a = shared + stage * 2 * kTileBytes;
    const std::uint32_t tile_b = tile_a + kTileBytes;
    stage = stage == kStages - 1 ? 0 : stage + 1;
    std::uint32_t fragments_a[2][kTilesM][4], fragments_b[2][kTilesN / 2][4];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int i = 0; i < kTilesM; ++i)
        ptx::ldmatrix_x4<false>(fragments_a[step][i],
                                tile_a + offset(line_a + 16 * i, 2 * step + lane / 16));
#pragma unroll
      for (int j = 0; j < kTilesN / 2; ++j)
        ptx::ldmatrix_x4<false>(fragments_b[step][j],
                                tile_b + offset(line_b + 16 * j, 2 * step + lane / 8 % 2));
    }
#pragma unroll
    for (int i = 0; i < kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) {
        Partial partial[std::is_same_v<Partial, float> ? 4 : 2] = {};
#pragma unroll
        for (int step = 0; step < 2; ++step)
          ptx::mma_sync<DType::f16, DType::f16>(partial, fragments_a[step][i],
                                                &fragments_b[step][j / 2][j % 2 * 2]);
        add(sums[i][j], partial);
      }
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

// Parameter 0: bits of the sums in the tensor core.
void mma_outside(Call& call) {
  if (call.parameters[0] != 16 && call.parameters[0] != 32) return no_such_variant(call);
  if (!takes(call, kBlock, kBlock, kBlockK)) return;
  launch(call,
         call.parameters[0] == 32 ? multiply_004_3_2_outside<float>
                                  : multiply_004_3_2_outside<std::uint32_t>,
         dim3(call.n / kBlock, call.m / kBlock), kThreads, kStages * 2 * kTileBytes,
         call.operand_a<half>(), call.operand_b<half>(), call.result<float>(), call.n, call.k);
}

}  // namespace tcgemm::ladder
