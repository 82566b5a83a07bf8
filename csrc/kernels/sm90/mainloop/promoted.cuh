// The sm_90a mainloop of promoted FP8 GEMMs. Tensor cores keep about 14 bits of an FP8 sum. So the
// partial sums of a k-block (128 of k) are promoted: added to f32 accumulators, after scaling where
// the operands are block-scaled. docs/dev/kernels/sm90-promoted.md says what was tried.
#pragma once

#include <cstdint>
#include <type_traits>

#include "catalog.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/order_barrier.cuh"
#include "kernels/sm90/producer.cuh"
#include "kernels/sm90/scales.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The scales of the partial sums: none, one for a row and 128 columns, or one for a row and a
// column.
enum class ScaleKind { none, column_groups, columns };

// The order of the work in a warpgroup:
//
//   chunk 0: wgmma -> partial[0]
//   chunk 1: wgmma -> partial[1]      meanwhile: accumulators of chunk 0 += partial[0]
//   chunk 2: wgmma -> partial[0]      meanwhile: accumulators of chunk 1 += partial[1]
//   ...
//
// A chunk is kChunk columns of a k-block. ptxas requires that WGMMA groups in flight stay inside
// one iteration of the loop (kDepth k-blocks), so a warpgroup has no group in flight while it
// promotes the last chunk. Two warpgroups alternate (order_barrier.cuh): one begins an iteration
// when the first chunks of the other have completed.
//
// With scales there are no registers for a second set of partial sums: accumulators would spill.
// Such kernels have one set, the widest chunk that fits, and alternate chunk by chunk: one
// warpgroup promotes while the other multiplies.
template <GemmConfig kConfig>
struct PromotedMainloop {
  static_assert(kConfig.promote == 1 && kConfig.m64_blocks == 1 && kConfig.tile_k() == 128);
  static_assert(kConfig.accumulator == DType::f32 && !kConfig.sparse && kConfig.terms == 1 &&
                kConfig.operand_source == OperandSource::SS);
  // True: one set of partial sums, and warpgroups alternate by chunks. False: two sets, and they
  // alternate by iterations.
  static constexpr bool kOnePartial = kConfig.block_scaled && kConfig.warpgroups == 2;
  // The widest chunk that fits in the registers.
  static constexpr bool kRegisterLimited = kConfig.n == 256 || kConfig.block_scaled;
  static constexpr int kMaxChunk = kRegisterLimited && !kOnePartial ? 64 : 128;
  static constexpr int kChunk = kConfig.n < kMaxChunk ? kConfig.n : kMaxChunk;
  static constexpr int kDepth = kOnePartial || kConfig.n == 256 ? 1 : 2;  // k-blocks an iteration
  static constexpr int kChunks = kConfig.n / kChunk;
  static constexpr int kGroups = (kConfig.n + kScaleBlock - 1) / kScaleBlock;
  static constexpr ptx::WgmmaType kType = wgmma_type<kConfig>(kChunk);
  static constexpr int kBlockBytes = 64 * 128;
  static constexpr int kSteps = 4;

  using ColumnScales = sm90::ColumnScales<kConfig>;
  using ScalePipelineState = tile::PipelineState<kConfig.scale_stages()>;
  struct PipelineState : tile::PipelineState<kConfig.stages> {
    ScalePipelineState scales;
  };
  using Register = float;
  static constexpr int kRegisters = kConfig.n / 2;
  using Accumulators = float[1][kRegisters];
  using Partial = float[kChunk / 2];

  using OrderBarrier = sm90::OrderBarrier<kConfig>;

  __device__ static void initialise_scale_barriers(const SharedStorage<kConfig>& shared) {
    shared.scale_barriers.initialise(ColumnScales::kWriters, ColumnScales::kReaders);
  }

  // True if a warp of the producer warpgroup copies the scales of columns.
  __device__ static bool scales_columns(const TmaParams& params) {
    return sm90::scales_columns(params);
  }

  __device__ static void load_column_scales(const TmaParams& params,
                                            const SharedStorage<kConfig>& shared,
                                            ScalePipelineState& state, int col, int batch,
                                            int k_blocks, int warp) {
    ColumnScales::load(params, shared, state, col, batch, k_blocks, warp);
  }

  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState& state,
                                  int k_blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators) {
    Context<ScaleKind::none> context{shared, cluster, warpgroup, {}};
    run_k_blocks(context, state, k_blocks, accumulators[0]);
  }

  // The same with block scales, for rows of a warp from `row` on and the tile's columns from `col`
  // on.
  __device__ static void multiply_scaled(const TmaParams& params,
                                         const SharedStorage<kConfig>& shared, PipelineState& state,
                                         int row, int col, int batch, int k_blocks, int warpgroup,
                                         Cluster cluster, Accumulators& accumulators) {
    row += threadIdx.x % 32 / 4;
    if (scales_columns(params)) {
      Context<ScaleKind::columns> context{shared, cluster, warpgroup, {params, row, col, batch}};
      run_k_blocks(context, state, k_blocks, accumulators[0]);
    } else {
      Context<ScaleKind::column_groups> context{
          shared, cluster, warpgroup, {params, row, col, batch}};
      run_k_blocks(context, state, k_blocks, accumulators[0]);
    }
  }

 private:
  struct NoScales {};
  template <ScaleKind kScaleKind>
  using Scales =
      std::conditional_t<kScaleKind == ScaleKind::none, NoScales,
                         RowScales<kScaleKind == ScaleKind::column_groups ? kGroups : 0>>;

  template <ScaleKind kScaleKind>
  struct Context {
    const SharedStorage<kConfig>& shared;
    Cluster cluster;
    int warpgroup;
    Scales<kScaleKind> row_scales;
  };

  // The scales of a k-block that this thread uses. `rows` has those of its two rows, multiplied by
  // those of the column groups if there are any. `columns` points to those of single columns, in
  // `stage`.
  template <ScaleKind kScaleKind>
  struct BlockScales {
    float rows[2][kScaleKind == ScaleKind::column_groups ? kGroups : 1];
    const float* columns;
    int stage;
  };

  template <ScaleKind kScaleKind>
  __device__ static void run_k_blocks(Context<kScaleKind>& context, PipelineState& state,
                                      int k_blocks, float (&accumulators)[kRegisters]) {
#pragma unroll
    for (float& x : accumulators) x = 0;
    int k_block = 0;
    if constexpr (kOnePartial) {
      // A tile has at least one k-block.
#pragma unroll 1
      do {
        alternate_chunks(context, state, ++k_block < k_blocks, accumulators);
      } while (k_block < k_blocks);
    } else {
#pragma unroll 1
      for (; k_block + kDepth <= k_blocks; k_block += kDepth)
        overlap_chunks<kDepth>(context, state, k_blocks - k_block, accumulators);
      if constexpr (kDepth > 1)
        if (k_block < k_blocks) overlap_chunks<1>(context, state, 1, accumulators);
    }
  }

  // Issues the WGMMAs of a chunk, as kCommits groups.
  template <int kCommits, ScaleKind kScaleKind>
  __device__ static void multiply_chunk(const Context<kScaleKind>& context, int stage, int chunk,
                                        Partial& partial) {
    const std::uint32_t address = context.shared.stage(stage);
    const std::uint64_t a = ptx::wgmma_descriptor(address + context.warpgroup * kBlockBytes);
    const std::uint64_t b = ptx::wgmma_descriptor(address + TmaProducer<kConfig>::kBytesA) +
                            chunk * (kChunk * 128 >> 4);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::wgmma<kType>(partial, a + step * ptx::kDescriptorStep<Major::K>,
                        b + step * ptx::kDescriptorStep<Major::K>, step != 0);
      if ((step + 1) % (kSteps / kCommits) == 0) ptx::wgmma_commit();
    }
  }

  // Computes one k-block, chunk by chunk; `more`: another one follows. A warpgroup arrives for
  // the other one when the first half of a chunk has completed.
  template <ScaleKind kScaleKind>
  __device__ static void alternate_chunks(Context<kScaleKind>& context, PipelineState& state,
                                          bool more, float (&accumulators)[kRegisters]) {
    Partial partial;
    BlockScales<kScaleKind> scales;
    const int stage = state.stage;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      OrderBarrier::wait(context.warpgroup);
      if (chunk == 0) {
        ptx::mbarrier_wait(context.shared.barriers.full(stage), state.parity);
        state.advance();
      }
      multiply_chunk<2>(context, stage, chunk, partial);
      ptx::wgmma_wait<1>();
      OrderBarrier::arrive(context.warpgroup);
      if (chunk == 0) scales = read_scales(context, more, state.scales);
      ptx::wgmma_wait<0>();
      ptx::wgmma_results(partial);
      if (chunk == kChunks - 1) consumer_release<kConfig>(context.shared, stage, context.cluster);
      promote(scales, chunk, partial, accumulators);
      ptx::wgmma_results(accumulators);  // completes promotion before wait()
      if (kScaleKind == ScaleKind::columns && chunk == kChunks - 1)
        release_scales(context.shared, scales.stage);
    }
  }

  // Computes kCount of the `remaining` k-blocks: promotes one chunk while WGMMA computes the next.
  template <int kCount, ScaleKind kScaleKind>
  __device__ static void overlap_chunks(Context<kScaleKind>& context, PipelineState& state,
                                        int remaining, float (&accumulators)[kRegisters]) {
    constexpr int kItems = kCount * kChunks;
    constexpr int kArriveItem = kItems / 2;  // chunks completed at arrive()
    Partial partial[2];
    int stages[kCount];
    BlockScales<kScaleKind> scales[kCount];
    // Promotes a completed chunk, and releases the stage after the last chunk of a k-block.
    const auto promote_item = [&](int item, int stage) {
      const int k_block = item / kChunks, chunk = item % kChunks;
      promote(scales[k_block], chunk, partial[item % 2], accumulators);
      if (chunk < kChunks - 1) return;
      consumer_release<kConfig>(context.shared, stage, context.cluster);
      if constexpr (kScaleKind == ScaleKind::columns)
        release_scales(context.shared, scales[k_block].stage);
    };
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int k_block = item / kChunks, chunk = item % kChunks;
      if (item == 0) OrderBarrier::wait(context.warpgroup);
      if (chunk == 0) {
        stages[k_block] = state.stage;
        context.shared.barriers.consumer_wait(state);
        state.advance();
      }
      multiply_chunk<1>(context, stages[k_block], chunk, partial[item % 2]);
      if (chunk == (kChunks > 1))
        scales[k_block] = read_scales(context, k_block + 1 < remaining, state.scales);
      if (item == 0) continue;
      ptx::wgmma_wait<1>();
      if (item == kArriveItem) OrderBarrier::arrive(context.warpgroup);
      promote_item(item - 1, stages[(item - 1) / kChunks]);
    }
    if constexpr (kItems == 1) OrderBarrier::arrive(context.warpgroup);
    ptx::wgmma_wait<0>();
    promote_item(kItems - 1, stages[kCount - 1]);
  }

  template <ScaleKind kScaleKind>
  __device__ static void promote(const BlockScales<kScaleKind>& scales, int chunk,
                                 const Partial& partial, float (&accumulators)[kRegisters]) {
    float* sums = accumulators + chunk * (kChunk / 2);
    if constexpr (kScaleKind == ScaleKind::none) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) sums[i] += partial[i];
    } else if constexpr (kScaleKind == ScaleKind::column_groups) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i)
        sums[i] += partial[i] * scales.rows[i / 2 % 2][chunk * kChunk / kScaleBlock];
    } else {
      const float* columns = scales.columns + chunk * kChunk;
#pragma unroll
      for (int j = 0; j < kChunk / 8; ++j) {
        const float2 pair = *reinterpret_cast<const float2*>(columns + 8 * j);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[4 * j + i] +=
              partial[4 * j + i] * (scales.rows[i / 2][0] * (i % 2 ? pair.y : pair.x));
      }
    }
  }

  // Called while the WGMMAs of the k-block are in flight.
  template <ScaleKind kScaleKind>
  __device__ static BlockScales<kScaleKind> read_scales(Context<kScaleKind>& context, bool more,
                                                        ScalePipelineState& state) {
    BlockScales<kScaleKind> scales{};
    if constexpr (kScaleKind != ScaleKind::none) context.row_scales.next(more, scales.rows);
    if constexpr (kScaleKind == ScaleKind::columns) {
      context.shared.scale_barriers.consumer_wait(state);
      scales.columns = context.shared.scales_of(state.stage) + threadIdx.x % 4 * 2;
      scales.stage = state.stage;
      state.advance();
    }
    return scales;
  }

  __device__ static void release_scales(const SharedStorage<kConfig>& shared, int stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.scale_barriers.empty(stage));
  }
};

}  // namespace tcgemm::sm90
