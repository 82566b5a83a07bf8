// Four times the tiles: a block of 128x128 loads half as many bytes for each product as one of
// 64x64, and a fragment serves four or eight tiles. Two blocks share an SM.
#include <cuda_fp16.h>

#include "lab/launch.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::ladder {

// Warps have 4 x kTilesN tiles of 16x8: eight warps, 2 x 4, with 4x4 tiles, or four with 4x8.
constexpr int kTilesM = 4, kBlock = 128, kBlockK = 32, kTileBytes = kBlock * 64;
constexpr int threads(int tiles_n) { return 2 * kBlock / (8 * tiles_n) * 32; }

// Where a chunk of 16 bytes of a tile lies: rows of 64 bytes, two of them in a line of 128, whose
// chunks are permuted so that eight rows of one chunk lie in all 32 banks.
static __device__ int offset(int row, int chunk) { return row * 64 + (chunk ^ row / 2 % 4) * 16; }

// Starts to copy kBlock rows of 32 elements, from what this thread copies of the first ones.
template <int kThreads>
static __device__ void copy(std::uint32_t tile, const half* first, int k) {
#pragma unroll
  for (int i = 0; i < kBlock; i += kThreads / 4)
    ptx::cp_async(tile + i * 64, reinterpret_cast<const char*>(first + i * k));
}

// a is row-major, b column-major, c row-major.
template <int kStages, int kTilesN>
__global__ void __launch_bounds__(threads(kTilesN), 2)
    multiply_004_3_1(const half* a, const half* b, float* c, int n, int k) {
  constexpr int kThreads = threads(kTilesN), kWarpsN = kBlock / (8 * kTilesN);
  extern __shared__ __align__(128) char stages[];  // of each stage: a tile of a, then one of b
  const std::uint32_t shared = ptx::shared_address(stages);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int own_row = warp / kWarpsN * 16 * kTilesM, own_column = warp % kWarpsN * 8 * kTilesN;
  const int line_a = own_row + lane % 16, line_b = own_column + lane % 8 + lane / 16 * 8;
  const int row = blockIdx.y * kBlock, column = blockIdx.x * kBlock, blocks = k / kBlockK;
  float sums[kTilesM][kTilesN][4] = {};
  const int line = threadIdx.x / 4, chunk = threadIdx.x % 4;  // that this thread copies first
  const half* next_a = a + (row + line) * k + chunk * 8;
  const half* next_b = b + (column + line) * k + chunk * 8;
  const auto fill = [&](int block, int stage) {  // an empty group beyond the end: groups count
    if (block < blocks) {
      const std::uint32_t tile = shared + stage * 2 * kTileBytes + offset(line, chunk);
      copy<kThreads>(tile, next_a, k);
      copy<kThreads>(tile + kTileBytes, next_b, k);
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

template <int kStages, int kTilesN>
static void launch_stages(Call& call) {
  launch(call, multiply_004_3_1<kStages, kTilesN>, dim3(call.n / kBlock, call.m / kBlock),
         threads(kTilesN), kStages * 2 * kTileBytes, call.operand_a<half>(), call.operand_b<half>(),
         call.result<float>(), call.n, call.k);
}

// Parameters: stages; columns of a warp.
void mma_large_tiles(Call& call) {
  const int stages = call.parameters[0], columns = call.parameters[1];
  if (stages < 3 || stages > 4 || (columns != 32 && columns != 64)) return no_such_variant(call);
  if (!takes(call, kBlock, kBlock, kBlockK)) return;
  if (columns == 32) return stages == 3 ? launch_stages<3, 4>(call) : launch_stages<4, 4>(call);
  return stages == 3 ? launch_stages<3, 8>(call) : launch_stages<4, 8>(call);
}

}  // namespace tcgemm::ladder
