// The scales of block-scaled products and their ring: the warps beside the thread that feeds TMA
// copy a value for every row and column of the tile, any strides, for one k-block after the other.
// The copies are asynchronous and count as arrivals on the stage's barrier, so that the warps run
// ahead; every warp that multiplies gives a stage back by itself.
//
//   a stage:  tile_m of a | tile_n of b                                                      f32
//
// A warp has 128 of them, four a lane: with more, what it does for a k-block took longer than the
// products.
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
  static constexpr int kCopies = 4;  // a lane
  static constexpr int kPerWarp = 32 * kCopies;
  static constexpr int kValues = kRow.tile_m() + kRow.tile_n();
  static constexpr int kWarps = kValues / kPerWarp + (kValues % kPerWarp != 0);
  static_assert(kWarps <= 3 && kValues % 32 == 0 && kRow.tile_m() % 32 == 0);
  // Arrivals a stage.
  static constexpr int kWriters = 32 * kWarps, kReaders = 4 * kRow.warpgroups;

  // For all k-blocks of one tile; `warp` counts those that load scales.
  __device__ static void load(const Sm90Params& params, const Block<kRow>& shared,
                              Position& position, int row, int col, int batch, int blocks,
                              int warp) {
    const int lane = threadIdx.x % 32, begin = warp * kPerWarp;
    const float* from[kCopies];
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int at = begin + 32 * i;
      from[i] = at < kRow.tile_m() ? first(params.scale_a, row + at + lane, params.extent.m, batch)
                                   : first(params.scale_b, col + at - kRow.tile_m() + lane,
                                           params.extent.n, batch);
    }
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      ptx::mbarrier_wait(shared.scale_barriers.empty(position.stage), position.parity ^ 1);
      const std::uint32_t to = ptx::shared_address(shared.scales_of(position.stage) + begin + lane);
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int at = begin + 32 * i;
        if (at < kValues) ptx::cp_async_word(to + 128 * i, from[i]);
        from[i] += at < kRow.tile_m() ? params.scale_a.stride_k : params.scale_b.stride_k;
      }
      ptx::cp_async_arrive(shared.scale_barriers.full(position.stage));
      position.advance();
    }
    ptx::cp_async_wait<0>();
  }

 private:
  // Rows and columns beyond the matrix take the last one's.
  __device__ static const float* first(const Multiplier& scale, int index, int extent, int batch) {
    if (scale.data == nullptr) return &kNoScale;
    return scale.data + batch * scale.stride_batch +
           (min(index, extent - 1) >> scale.shift) * scale.stride;
  }
};

}  // namespace tcgemm::sm90
