// The scales of block-scaled GEMMs, one for 128 of k: from global memory to stages of shared
// memory, where the consumers read them. docs/dev/kernels/sm90-promoted.md says what was tried.
#pragma once

#include <cstdint>
#include <numeric>

#include "core/params.h"
#include "kernels/sm90/producer.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The scale of an operand without scales.
static __device__ const float kUnitScale = 1.0f;

// The address of the scale of k-block `k_block`. An index past the matrix gets the last scale.
__device__ inline const float* first_scale(const ScaleVector& scale, int index, int extent,
                                           int matrix, int k_block) {
  if (scale.data == nullptr) return &kUnitScale;
  return scale.data + matrix * scale.stride_batch + k_block * scale.stride_k +
         (min(index, extent - 1) >> scale.shift) * scale.stride;
}

// True if every column of b has its own scale.
__device__ inline bool scales_columns(const TmaParams& params) {
  return params.scale_b.shift == 0 && params.scale_b.stride != 0;
}

// The scales of a k-block in shared memory: one for each row of the tile, then one for each column
// or, where columns share scales, for each kSegment columns. Three warps of the producer warpgroup
// copy them by cp.async, so any strides will do. The copies arrive on the full barrier of the
// operands' stage.
template <GemmConfig kConfig>
struct ScaleProducer {
  // Columns of a tile that surely share a scale: tiles begin at multiples of tile_n.
  static constexpr int kSegment = std::gcd(kConfig.n, kScaleBlock);
  static constexpr int kSegments = kConfig.n / kSegment;
  static constexpr int kWriters = 96;  // arrivals on the full barrier

  // The stage of the operands and the stage of the scales: GemmConfig::scale_stages.
  struct State : tile::PipelineState<kConfig.stages> {
    tile::PipelineState<kConfig.scale_stages()> scales;

    __device__ void advance() {
      tile::PipelineState<kConfig.stages>::advance();
      scales.advance();
    }
    __device__ void advance(int count) {
      tile::PipelineState<kConfig.stages>::advance(count);
      scales.advance(count);
    }
    __device__ State uniform() const {
      return {tile::PipelineState<kConfig.stages>::uniform(), scales.uniform()};
    }
  };

  // Copies the scales of `k_blocks` k-blocks of one tile, from `first` on. `warp` counts the warps
  // that copy scales: the first one copies scales of rows.
  __device__ static void load(const TmaParams& params, const SharedStorage<kConfig>& shared,
                              State& state, int row, int col, int matrix, int first, int k_blocks,
                              int warp) {
    const int lane = threadIdx.x % 32;
    if (warp == 0) {
      copy<32, kConfig.tile_m()>(params.scale_a, shared, state, 0, lane, row, 1, kConfig.tile_m(),
                                 params.extent.m, matrix, first, k_blocks);
    } else {
      const bool columns = scales_columns(params);
      copy<64, kConfig.n>(params.scale_b, shared, state, kConfig.tile_m(), (warp - 1) * 32 + lane,
                          col, columns ? 1 : kSegment, columns ? kConfig.n : kSegments,
                          params.extent.n, matrix, first, k_blocks);
    }
  }

 private:
  // Copies every kThreads-th of `count` scales, from `index` on.
  template <int kThreads, int kMost>
  __device__ static void copy(const ScaleVector& scale, const SharedStorage<kConfig>& shared,
                              State& state, int offset, int index, int origin, int spacing,
                              int count, int extent, int matrix, int first, int k_blocks) {
    constexpr int kCopies = (kMost + kThreads - 1) / kThreads;
    const float* from[kCopies];
#pragma unroll
    for (int i = 0; i < kCopies; ++i)
      from[i] =
          first_scale(scale, origin + (index + kThreads * i) * spacing, extent, matrix, first);
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
      shared.barriers.producer_acquire(state);
      const std::uint32_t to =
          ptx::shared_address(shared.scales_of(state.scales.stage) + offset + index);
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        if (index + kThreads * i < count) ptx::cp_async_b32(to + 4 * kThreads * i, from[i]);
        from[i] += scale.stride_k;
      }
      ptx::cp_async_arrive(shared.barriers.full(state.stage));
      state.advance();
    }
    ptx::cp_async_wait<0>();
  }
};

}  // namespace tcgemm::sm90
