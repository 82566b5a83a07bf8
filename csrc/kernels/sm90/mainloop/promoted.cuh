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
#include "ptx/uniform.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The scales of the partial sums: none, one for a row and a segment of columns, or one for a row
// and a column.
enum class ScaleKind { none, column_segments, columns };

// The order of the work in a warpgroup, in chunks of kChunk columns of a k-block:
//
//   chunk 0: wgmma -> partial[0]
//   chunk 1: wgmma -> partial[1]      meanwhile: accumulators of chunk 0 += partial[0]
//   chunk 2: wgmma -> partial[0]      meanwhile: accumulators of chunk 1 += partial[1]
//   ...
//
// A chunk is in flight at all times, so the warpgroups need no order. Between two iterations of a
// loop ptxas keeps it in flight if the iteration has two k-blocks: with one it serialises WGMMA
// (C7514).
//
// Block-scaled tiles of 256 columns, of three warpgroups, and with scales of single columns tiles
// of 128, have registers for one set of partial sums, of 128 columns. Two warpgroups alternate
// (order_barrier.cuh): one multiplies a chunk while the other promotes. Three need no order: two
// chunks are in flight or wait for the tensor cores while a warpgroup promotes.
template <GemmConfig kConfig>
struct PromotedMainloop {
  static_assert(kConfig.promotes() && kConfig.m64_blocks == 1 && kConfig.tile_k() == 128);
  static_assert(kConfig.accumulator == DType::f32 && kConfig.terms() == 1);
  static constexpr bool kOrdered = kConfig.orders_warpgroups();
  template <ScaleKind kScaleKind>
  static constexpr bool kOneSet =
      kConfig.warpgroups == 3 ||
      (kOrdered && (kConfig.n == 256 || kScaleKind == ScaleKind::columns));
  // The widest chunk that fits in the registers, beside the accumulators of all columns.
  static constexpr int kChunk = kOneSet<ScaleKind::columns> ? 128
                                : kConfig.n == 256          ? 64
                                : kConfig.n == 192          ? 96
                                                            : kConfig.n;
  static constexpr int kChunks = kConfig.n / kChunk;
  static_assert(kChunks * kChunk == kConfig.n);
  static constexpr int kSegment = ScaleProducer<kConfig>::kSegment;
  static constexpr int kSegments = ScaleProducer<kConfig>::kSegments;
  static constexpr ptx::WgmmaType kType = wgmma_type<kConfig>(kChunk);
  static constexpr int kBlockBytes = 64 * 128;
  static constexpr int kSteps = 4;

  using PipelineState =
      std::conditional_t<kConfig.block_scaled(), typename ScaleProducer<kConfig>::State,
                         tile::PipelineState<kConfig.stages>>;
  using Register = float;
  static constexpr int kRegisters = kConfig.n / 2;
  using Accumulators = float[1][kRegisters];
  using Partial = float[kChunk / 2];

  using OrderBarrier = sm90::OrderBarrier<kConfig>;

  // meanwhile() is called once, while WGMMA is in flight.
  template <class Meanwhile>
  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState state,
                                  int k_blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators, const Meanwhile& meanwhile) {
    run_k_blocks<ScaleKind::none>({shared, cluster, ptx::uniform(warpgroup)}, state, k_blocks,
                                  accumulators[0], meanwhile);
  }

  // The same with block scales.
  template <class Meanwhile>
  __device__ static void multiply_scaled(const TmaParams& params,
                                         const SharedStorage<kConfig>& shared, PipelineState state,
                                         int k_blocks, int warpgroup, Cluster cluster,
                                         Accumulators& accumulators, const Meanwhile& meanwhile) {
    const Context context{shared, cluster, ptx::uniform(warpgroup)};
    if (scales_columns(params))
      run_k_blocks<ScaleKind::columns>(context, state, k_blocks, accumulators[0], meanwhile);
    else
      run_k_blocks<ScaleKind::column_segments>(context, state, k_blocks, accumulators[0],
                                               meanwhile);
  }

 private:
  struct Context {
    const SharedStorage<kConfig>& shared;
    Cluster cluster;
    int warpgroup;
  };

  // There are registers for the products of this thread's scales.
  template <ScaleKind kScaleKind>
  static constexpr bool kMultiplied = kScaleKind == ScaleKind::column_segments && kSegments <= 4;

  // The scales of a k-block that this thread uses. `rows` has the scales of its two rows,
  // multiplied by the scales of the column segments where kMultiplied. `columns` points to the
  // scales of columns or segments.
  template <ScaleKind kScaleKind>
  struct BlockScales {
    float rows[2][kMultiplied<kScaleKind> ? kSegments : 1];
    const float* columns;
  };

  template <ScaleKind kScaleKind, class Meanwhile>
  __device__ static void run_k_blocks(const Context& context, PipelineState state, int k_blocks,
                                      float (&accumulators)[kRegisters],
                                      const Meanwhile& meanwhile) {
#pragma unroll
    for (float& x : accumulators) x = 0;
    if constexpr (kOneSet<kScaleKind>) {
      meanwhile();
#pragma unroll 1
      do {
        alternate_chunks<kScaleKind>(context, state, accumulators);
      } while (--k_blocks > 0);
    } else {
      overlap_chunks<kScaleKind>(context, state, k_blocks, accumulators, meanwhile);
    }
  }

  // Waits for the next stage.
  __device__ static PipelineState take_stage(const Context& context, PipelineState& state) {
    const PipelineState taken = state;
    context.shared.barriers.consumer_wait(state);
    state.advance();
    return taken;
  }

  // Issues the WGMMAs of a chunk of the stage at `address`, as kCommits groups.
  template <int kCommits>
  __device__ static void multiply_chunk(const Context& context, std::uint32_t address, int chunk,
                                        Partial& partial) {
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

  // Computes all k-blocks of a tile, of which there is at least one.
  template <ScaleKind kScaleKind, class Meanwhile>
  __device__ static void overlap_chunks(const Context& context, PipelineState& state, int k_blocks,
                                        float (&accumulators)[kRegisters],
                                        const Meanwhile& meanwhile) {
    Partial partial[2];
    PipelineState current = take_stage(context, state);
    multiply_chunk<1>(context, context.shared.uniform_stage(current.stage), 0, partial[0]);
    meanwhile();
#pragma unroll 1
    for (; k_blocks > 2; k_blocks -= 2)
      overlap_k_blocks<2, true, kScaleKind>(context, state, current, partial, accumulators);
    if (k_blocks == 2)
      overlap_k_blocks<2, false, kScaleKind>(context, state, current, partial, accumulators);
    else
      overlap_k_blocks<1, false, kScaleKind>(context, state, current, partial, accumulators);
  }

  // Promotes kCount k-blocks. The first chunk has been issued before; each is promoted after the
  // next has been issued. kMore: another k-block follows, and its first chunk stays in flight.
  template <int kCount, bool kMore, ScaleKind kScaleKind>
  __device__ static void overlap_k_blocks(const Context& context, PipelineState& state,
                                          PipelineState& current, Partial (&partial)[2],
                                          float (&accumulators)[kRegisters]) {
    constexpr int kItems = kCount * kChunks;
    BlockScales<kScaleKind> scales;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const bool more = kMore || item + 1 < kItems;
      const int chunk = item % kChunks, next = (chunk + 1) % kChunks;
      const PipelineState promoted = current;
      if (more) {
        if (next == 0) current = take_stage(context, state);
        multiply_chunk<1>(context, context.shared.uniform_stage(current.stage), next,
                          partial[(item + 1) % 2]);
      }
      if (chunk == 0) scales = read_scales<kScaleKind>(context, promoted);
      more ? ptx::wgmma_wait<1>() : ptx::wgmma_wait<0>();
      ptx::wgmma_results(partial[item % 2]);
      if (next == 0) consumer_release<kConfig>(context.shared, promoted.stage, context.cluster);
      promote(scales, chunk, partial[item % 2], accumulators);
    }
  }

  // Computes one k-block. With an order, a warpgroup arrives for the other one when the first half
  // of a chunk has completed.
  template <ScaleKind kScaleKind>
  __device__ static void alternate_chunks(const Context& context, PipelineState& state,
                                          float (&accumulators)[kRegisters]) {
    Partial partial;
    BlockScales<kScaleKind> scales;
    const PipelineState current = take_stage(context, state);
    const std::uint32_t address = context.shared.uniform_stage(current.stage);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if constexpr (kOrdered) OrderBarrier::wait(context.warpgroup);
      multiply_chunk<kOrdered ? 2 : 1>(context, address, chunk, partial);
      if constexpr (kOrdered) {
        ptx::wgmma_wait<1>();
        OrderBarrier::arrive(context.warpgroup);
      }
      if (chunk == 0) scales = read_scales<kScaleKind>(context, current);
      ptx::wgmma_wait<0>();
      ptx::wgmma_results(partial);
      if (chunk == kChunks - 1)
        consumer_release<kConfig>(context.shared, current.stage, context.cluster);
      promote(scales, chunk, partial, accumulators);
      ptx::wgmma_results(accumulators);  // completes promotion before wait()
    }
  }

  template <ScaleKind kScaleKind>
  __device__ static void promote(const BlockScales<kScaleKind>& scales, int chunk,
                                 const Partial& partial, float (&accumulators)[kRegisters]) {
    float* sums = accumulators + chunk * (kChunk / 2);
    if constexpr (kScaleKind == ScaleKind::none) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) sums[i] += partial[i];
    } else if constexpr (kMultiplied<kScaleKind>) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i)
        sums[i] += partial[i] * scales.rows[i / 2 % 2][(chunk * kChunk + i / 4 * 8) / kSegment];
    } else if constexpr (kScaleKind == ScaleKind::column_segments) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i)
        sums[i] += partial[i] * (scales.rows[i / 2 % 2][0] *
                                 scales.columns[(chunk * kChunk + i / 4 * 8) / kSegment]);
    } else {
      static_assert(kScaleKind == ScaleKind::columns);
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
  __device__ static BlockScales<kScaleKind> read_scales(const Context& context,
                                                        const PipelineState& state) {
    BlockScales<kScaleKind> scales{};
    if constexpr (kScaleKind != ScaleKind::none) {
      const float* rows = context.shared.scales_of(state.scales.stage);
      const float* columns = rows + kConfig.tile_m();
      rows += context.warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float row = rows[8 * half];
        if constexpr (kMultiplied<kScaleKind>) {
#pragma unroll
          for (int i = 0; i < kSegments; ++i) scales.rows[half][i] = row * columns[i];
        } else {
          scales.rows[half][0] = row;
        }
      }
      scales.columns = columns;
      if constexpr (kScaleKind == ScaleKind::columns) scales.columns += threadIdx.x % 4 * 2;
    }
    return scales;
  }
};

}  // namespace tcgemm::sm90
