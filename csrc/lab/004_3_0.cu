// A pipeline of stages in shared memory: cp.async copies blocks of k that are multiplied later, and
// the products of one block cover the latency of the copies of those behind it.
#include <cuda_fp16.h>

#include "lab/launch.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::ladder {

// Eight warps, 2 x 4, each with 2x2 tiles of 16x8.
constexpr int kTilesM = 2, kTilesN = 2, kBlock = 64, kBlockK = 32, kTileBytes = kBlock * 64;
constexpr int kThreads = 256;

// Where a chunk of 16 bytes of a tile lies: rows of 64 bytes, two of them in a line of 128, whose
// chunks are permuted so that eight rows of one chunk lie in all 32 banks.
static __device__ int offset(int row, int chunk) { return row * 64 + (chunk ^ row / 2 % 4) * 16; }

// Starts to copy kBlock rows of 32 elements, from what this thread copies of the first ones.
static __device__ void copy(std::uint32_t tile, const half* first, int k) {
#pragma unroll
  for (int i = 0; i < kBlock; i += kThreads / 4)
    ptx::cp_async(tile + i * 64, reinterpret_cast<const char*>(first + i * k));
}

// a is row-major, b column-major, c row-major.
template <int kStages>
__global__ void __launch_bounds__(kThreads)
    multiply_004_3_0(const half* a, const half* b, float* c, int n, int k) {
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
#pragma unroll
    for (int step = 0; step < kBlockK / 16; ++step) {
      std::uint32_t fragments_a[kTilesM][4], fragments_b[kTilesN / 2][4];
#pragma unroll
      for (int i = 0; i < kTilesM; ++i)
        ptx::ldmatrix_x4<false>(fragments_a[i],
                                tile_a + offset(line_a + 16 * i, 2 * step + lane / 16));
#pragma unroll
      for (int j = 0; j < kTilesN / 2; ++j)
        ptx::ldmatrix_x4<false>(fragments_b[j],
                                tile_b + offset(line_b + 16 * j, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int j = 0; j < kTilesN; ++j)
#pragma unroll
        for (int i = 0; i < kTilesM; ++i)
          ptx::mma_sync<DType::f16, DType::f16>(sums[i][j], fragments_a[i],
                                                &fragments_b[j / 2][j % 2 * 2]);
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

template <int kStages>
static void launch_stages(Call& call) {
  if (!takes(call, kBlock, kBlock, kBlockK)) return;
  launch(call, multiply_004_3_0<kStages>, dim3(call.n / kBlock, call.m / kBlock), kThreads,
         kStages * 2 * kTileBytes, call.operand_a<half>(), call.operand_b<half>(),
         call.result<float>(), call.n, call.k);
}

// Parameter 0: stages.
void mma_stages(Call& call) {
  if (call.parameters[0] == 2) return launch_stages<2>(call);
  if (call.parameters[0] == 3) return launch_stages<3>(call);
  if (call.parameters[0] == 4) return launch_stages<4>(call);
  if (call.parameters[0] == 5) return launch_stages<5>(call);
  no_such_variant(call);
}

}  // namespace tcgemm::ladder
