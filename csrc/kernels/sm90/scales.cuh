// The scales of block-scaled products on their way into the ring: one warp beside the thread that
// feeds TMA reads a value for every row and column of the tile, any strides, and writes them beside
// the stage of the k-block they belong to.
//
//   scales of a stage:  tile_m of a | tile_n of b                                            f32
//
// Values of the next k-block are read before the warp waits for their place, so that the latency of
// memory is hidden.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/sm90/ring.cuh"
#include "ptx/mbarrier.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

template <Kernel kRow>
struct Scales {
  static constexpr int kRows = kRow.tile_m() / 32, kColumns = kRow.tile_n() / 32;
  using Values = float[kRows + kColumns];

  // For all k-blocks of one tile.
  __device__ static void load(const Sm90Params& params, const Block<kRow>& shared,
                              tile::Position<kRow.stages>& position, int row, int col, int batch,
                              int blocks) {
    const int lane = threadIdx.x % 32;
    Values next;
    fetch(params, row + lane, col + lane, batch, 0, next);
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      Values values;
#pragma unroll
      for (int i = 0; i < kRows + kColumns; ++i) values[i] = next[i];
      if (block + 1 < blocks) fetch(params, row + lane, col + lane, batch, block + 1, next);
      ptx::mbarrier_wait(shared.barriers.empty(position.stage), position.parity ^ 1);
      float* to = shared.scales_of(position.stage) + lane;
#pragma unroll
      for (int i = 0; i < kRows + kColumns; ++i) to[32 * i] = values[i];
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(shared.barriers.full(position.stage));
      position.advance();
    }
  }

 private:
  // Rows and columns beyond the matrix take the last one's.
  __device__ static void fetch(const Sm90Params& params, int row, int col, int batch, int block,
                               Values& values) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      values[i] = value(params.scale_a, min(row + 32 * i, params.extent.m - 1), batch, block);
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
      values[kRows + i] =
          value(params.scale_b, min(col + 32 * i, params.extent.n - 1), batch, block);
  }

  __device__ static float value(const Multiplier& scale, int index, int batch, int block) {
    if (scale.data == nullptr) return 1.0f;
    return scale.data[batch * scale.stride_batch + (index >> scale.shift) * scale.stride +
                      block * scale.stride_k];
  }
};

}  // namespace tcgemm::sm90
