// The scales of block-scaled products and their ring: one warp beside the thread that feeds TMA
// copies a value for every row and column of the tile, any strides, for one k-block after the
// other. The copies are asynchronous and count as arrivals on the stage's barrier, so that the warp
// runs ahead; every warp that multiplies gives a stage back by itself.
//
//   a stage:  tile_m of a | tile_n of b                                                      f32
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/sm90/ring.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// Of an operand without scales.
static __device__ const float kNoScale = 1.0f;

template <Kernel kRow>
struct Scales {
  using Position = tile::Position<kRow.scale_stages()>;
  static constexpr int kWriters = 32, kReaders = 4 * kRow.warpgroups;  // arrivals a stage

  // For all k-blocks of one tile.
  __device__ static void load(const Sm90Params& params, const Block<kRow>& shared,
                              Position& position, int row, int col, int batch, int blocks) {
    const int lane = threadIdx.x % 32;
    const float* a = first(params.scale_a, batch);
    const float* b = first(params.scale_b, batch);
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      ptx::mbarrier_wait(shared.scale_barriers.empty(position.stage), position.parity ^ 1);
      const std::uint32_t to = ptx::shared_address(shared.scales_of(position.stage) + lane);
      copy<kRow.tile_m() / 32>(params.scale_a, a, row + lane, params.extent.m, to);
      copy<kRow.tile_n() / 32>(params.scale_b, b, col + lane, params.extent.n,
                               to + kRow.tile_m() * 4);
      ptx::cp_async_arrive(shared.scale_barriers.full(position.stage));
      a += params.scale_a.stride_k;
      b += params.scale_b.stride_k;
      position.advance();
    }
    ptx::cp_async_wait<0>();
  }

 private:
  __device__ static const float* first(const Multiplier& scale, int batch) {
    return scale.data == nullptr ? &kNoScale : scale.data + batch * scale.stride_batch;
  }

  // Rows and columns beyond the matrix take the last one's.
  template <int kCount>
  __device__ static void copy(const Multiplier& scale, const float* from, int index, int extent,
                              std::uint32_t to) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = min(index + 32 * i, extent - 1) >> scale.shift;
      ptx::cp_async_word(to + 128 * i, from + at * scale.stride);
    }
  }
};

}  // namespace tcgemm::sm90
