// Yan, Wang and Chu's HGEMM for Turing. Bandwidth decides: tiles as large as the registers allow,
// rows in shared memory that are padded against conflicts, the next tile prefetched into registers,
// and its stores spread between the last products, because all warps share one memory pipe.
#include <cuda_fp16.h>

#include "lab/000_tile.cuh"
#include "lab/launch.cuh"
#include "ptx/ladder_mma.cuh"

namespace tcgemm::ladder {

// a is row-major, b column-major, c row-major.
template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    multiply_000(const half* a, const half* b, half* c, int n, int k) {
  constexpr int kM = Tile::kM, kN = Tile::kN, kK = Tile::kK, kWarpsM = kM / Tile::kWarpM;
  constexpr int kChunks = kK / 8, kSteps = kK / 8, kLines = Tile::kThreads / kChunks;
  constexpr int kCopies = (kM + kN) / kLines;  // of 16 bytes, of a thread
  constexpr int kTilesM = Tile::kWarpM / 16, kTilesN = Tile::kWarpN / 8;
  constexpr bool kSpaced = Tile::kDistance > 0;
  constexpr int kEvery = kSpaced ? Tile::kDistance : 1;
  __shared__ __align__(128) char tiles[Tile::offset(kM + kN, 0)];  // rows of a, then of b
  const std::uint32_t shared = ptx::shared_address(tiles);
  const int row = blockIdx.y * kM, column = blockIdx.x * kN, warp = threadIdx.x / 32;
  const int own_row = warp % kWarpsM * Tile::kWarpM, own_column = warp / kWarpsM * Tile::kWarpN;
  const int line = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;  // of the first copy
  const half* source_a = a + (row + line) * k + chunk * 8;
  const half* source_b = b + (column + line) * k + chunk * 8;
  uint4 next[kCopies];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int r = i * kLines;
      const half* source = r < kM ? source_a + r * k : source_b + (r - kM) * k;
      next[i] = *reinterpret_cast<const uint4*>(source + first);
    }
  };
  const std::uint32_t target = shared + Tile::offset(line, chunk * 8);
  const auto store = [&](int i) {
    if (i < kCopies) ptx::store_shared_x4(target + Tile::offset(i * kLines, 0), next[i]);
  };
  std::uint32_t sums[kTilesM][kTilesN][2] = {};
  std::uint32_t fragments_a[2][2 * kTilesM], fragments_b[2][kTilesN];  // of this step and the next
  const std::uint32_t lane_a = shared + Tile::lane_offset(own_row);
  const std::uint32_t lane_b = shared + Tile::lane_offset(kM + own_column);
  const auto load_step = [&](int step) {
    Tile::load(fragments_a[step % 2], lane_a + step * 16);
    Tile::load(fragments_b[step % 2], lane_b + step * 16);
  };
  load(0);
#pragma unroll
  for (int i = 0; i < kCopies; ++i) store(i);
  load(min(kK, k - kK));
  __syncthreads();
  load_step(0);
#pragma unroll 1
  for (int first = 2 * kK; first <= k + kK; first += kK) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const bool last = step == kSteps - 1;
      if (last)
        __syncthreads();  // all warps have their last fragments: the tiles may be replaced
      else
        load_step(step + 1);
#pragma unroll
      for (int i = 0; i < kCopies; ++i)
        if (last && !kSpaced) store(i);
#pragma unroll
      for (int product = 0; product < kTilesM * kTilesN; ++product) {
        const int i = product % kTilesM, j = product / kTilesM;
        if (last && kSpaced && product % kEvery == 0) store(product / kEvery);
        ptx::mma_f16_k8(sums[i][j], &fragments_a[step % 2][2 * i], fragments_b[step % 2][j]);
      }
    }
    constexpr int kStored = kSpaced ? (kTilesM * kTilesN - 1) / kEvery + 1 : kCopies;
#pragma unroll
    for (int i = kStored; i < kCopies; ++i) store(i);  // those that found no place
    load(min(first, k - kK));  // after the last block that one again, which nobody uses
    __syncthreads();
    load_step(0);
  }
  const int lane = threadIdx.x % 32;
  c += (row + own_row + lane / 4) * n + column + own_column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2 * kTilesM; ++i)
#pragma unroll
    for (int j = 0; j < kTilesN; ++j)
      *reinterpret_cast<std::uint32_t*>(c + 8 * i * n + 8 * j) = sums[i / 2][j][i % 2];
}

template <int... kTile>
static void launch_tile(Call& call) {
  using Tile = HgemmTile<kTile...>;
  if (!takes(call, Tile::kM, Tile::kN, Tile::kK)) return;
  launch(call, multiply_000<Tile>, dim3(call.n / Tile::kN, call.m / Tile::kM), Tile::kThreads, 0,
         call.operand_a<half>(), call.operand_b<half>(), call.result<half>(), call.n, call.k);
}

// Parameter 0: the number of a tile. 6 is the tile of cuBLAS 10.1; after it 5 without padding, with
// stores at a distance of 2 and all at once, and with ldmatrix.
void hgemm(Call& call) {
  constexpr void (*kTiles[])(Call&) = {
      launch_tile<128, 128, 32, 64, 64>,           launch_tile<128, 128, 32, 128, 64>,
      launch_tile<256, 128, 32, 64, 64>,           launch_tile<256, 128, 32, 128, 64>,
      launch_tile<256, 256, 32, 64, 64>,           launch_tile<256, 256, 32, 128, 64>,
      launch_tile<128, 128, 64, 64, 64>,           launch_tile<256, 256, 32, 128, 64, 0>,
      launch_tile<256, 256, 32, 128, 64, 1, 2>,    launch_tile<256, 256, 32, 128, 64, 1, 0>,
      launch_tile<256, 256, 32, 128, 64, 1, 5, 1>,
  };
  const unsigned tile = call.parameters[0];
  return tile < sizeof(kTiles) / sizeof(*kTiles) ? kTiles[tile](call) : no_such_variant(call);
}

}  // namespace tcgemm::ladder
