// The scales of block-scaled GEMMs, one for 128 of k: from global memory to the registers that
// multiply the partial sums. docs/dev/kernels/sm90-promoted.md says what was tried.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/sm90/producer.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/load.cuh"
#include "ptx/mbarrier.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The scale of an operand without scales.
static __device__ const float kUnitScale = 1.0f;

// The address of the scale of the first k-block. An index past the matrix gets the last scale.
__device__ inline const float* first_scale(const ScaleVector& scale, int index, int extent,
                                           int batch) {
  if (scale.data == nullptr) return &kUnitScale;
  return scale.data + batch * scale.stride_batch +
         (min(index, extent - 1) >> scale.shift) * scale.stride;
}

// True if every column of b has its own scale.
__device__ inline bool scales_columns(const TmaParams& params) {
  return params.scale_b.shift == 0 && params.scale_b.stride != 0;
}

// Most operands share one scale between 128 columns. Then a thread needs the scales of its two rows
// and of its groups of columns, and reads them one k-block ahead (RowScales). If every column of b
// has its own scale, warps of the producer warpgroup copy the scales into separate pipeline stages
// by cp.async (ColumnScales). The copies arrive on the full barrier of their stage, so these warps
// run ahead. Each consumer warp releases a stage by itself.
//
// Reads the scales of a thread: those of its two rows, times those of kGroups groups of columns.
// kGroups is 0 where every column has its own scale. Few registers are free beside accumulators and
// partial sums: a spilled prefetch stalls the warp.
template <int kGroups>
class RowScales {
 public:
  static constexpr int kGroupScales = kGroups > 0 ? kGroups : 1;

  __device__ RowScales(const TmaParams& params, int row, int col, int batch) : params_(params) {
    const int last = params.extent.m - 1, first = min(row, last), shift = params.scale_a.shift;
    next_row_ = first_scale(params.scale_a, first, params.extent.m, batch);
    row_distance_ = (min(row + 8, last) >> shift) - (first >> shift);
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
      next_groups_[group] =
          first_scale(params.scale_b, col + group * kScaleBlock, params.extent.n, batch);
    load_next();
  }

  // Returns the scales of a k-block, and loads those of the next one if there are `more`.
  __device__ void next(bool more, float (&scales)[2][kGroupScales]) {
#pragma unroll
    for (int group = 0; group < kGroupScales; ++group)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        scales[half][group] = rows_[half] * (kGroups > 0 ? groups_[group] : 1.0f);
    if (more) load_next();
  }

 private:
  __device__ void load_next() {
    rows_[0] = ptx::load(next_row_);
    rows_[1] = ptx::load(next_row_ + row_distance_ * params_.scale_a.stride);
    next_row_ += params_.scale_a.stride_k;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      groups_[group] = ptx::load(next_groups_[group]);
      next_groups_[group] += params_.scale_b.stride_k;
    }
  }

  const TmaParams& params_;
  const float* next_row_;
  const float* next_groups_[kGroupScales];
  int row_distance_;  // from the scale of the first row to that of the second
  float rows_[2], groups_[kGroupScales];
};

template <GemmConfig kConfig>
struct ColumnScales {
  using PipelineState = tile::PipelineState<kConfig.scale_stages()>;
  static constexpr int kWarps = (kConfig.tile_n() + 127) / 128;  // four values a lane
  static constexpr int kCopies = kConfig.tile_n() < 128 ? kConfig.tile_n() / 32 : 4;
  static_assert(kWarps <= 3 && kConfig.tile_n() % 32 == 0);
  // Arrivals that complete a phase of a stage: of its full and of its empty barrier.
  static constexpr int kWriters = 32 * kWarps, kReaders = 4 * kConfig.warpgroups;

  // Copies the scales of all k-blocks of one tile. `warp` counts the warps that copy scales.
  __device__ static void load(const TmaParams& params, const SharedStorage<kConfig>& shared,
                              PipelineState& state, int col, int batch, int k_blocks, int warp) {
    const int lane = warp * 32 * kCopies + threadIdx.x % 32;
    const float* from[kCopies];
#pragma unroll
    for (int i = 0; i < kCopies; ++i)
      from[i] = first_scale(params.scale_b, col + lane + 32 * i, params.extent.n, batch);
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
      shared.scale_barriers.producer_acquire(state);
      const std::uint32_t to = ptx::shared_address(shared.scales_of(state.stage) + lane);
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        ptx::cp_async_b32(to + 128 * i, from[i]);
        from[i] += params.scale_b.stride_k;
      }
      ptx::cp_async_arrive(shared.scale_barriers.full(state.stage));
      state.advance();
    }
    ptx::cp_async_wait<0>();
  }
};

}  // namespace tcgemm::sm90
