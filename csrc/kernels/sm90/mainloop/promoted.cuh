// The mainloop of promoted products: tensor cores keep about 14 bits of an fp8 sum, so the sums of
// a k-block (128 of k) are added to a second set of accumulators in f32, scaled where the operands'
// blocks have scales.
//
//   chunk 0: wgmma -> partial[0]
//   chunk 1: wgmma -> partial[1]      meanwhile: accumulators of chunk 0 += partial[0]
//   chunk 2: wgmma -> partial[0]      meanwhile: accumulators of chunk 1 += partial[1]
//   ...
//
// A chunk is kChunk columns of a k-block. ptxas asks that groups in flight stay inside one
// iteration of the loop (kDepth k-blocks), so a warpgroup has nothing in flight while it adds the
// last chunk. Two warpgroups take turns (turns.cuh): one begins an iteration when the other has its
// first chunk back.
//
// Factors leave no registers for a second set of partial sums without spilling accumulators; there
// the chunks are as wide as one set allows, and the warpgroups take turns chunk by chunk: while one
// adds, the other multiplies.
//
// Tried on an H200, e4m3 to bf16, 4096 and 8192, x torch._scaled_mm without fast accumulation:
// 128x256, chunks of 64, one k-block an iteration: 0.98 and 0.96, without turns 0.87 and 0.81. One
// set of partial sums of 128: 0.95 and 0.92, and with a in registers, for fewer reads of shared
// memory, 0.85 and 0.82. 128x128: chunks of 64 0.92 and 0.91, of 128 0.93 and 0.88, of 128 in one
// set 0.85 and 0.82. Scaled blocks, x torch's: one set of 128 0.91 and 0.88, two of 64 0.86 and
// 0.83, 128x128 0.84 and 0.81.
#pragma once

#include <cstdint>
#include <type_traits>

#include "catalog.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/pingpong.cuh"
#include "kernels/sm90/producer.cuh"
#include "kernels/sm90/scales.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// What multiplies the partial sums: nothing, a factor a row and 128 columns, or a factor a row and
// column.
enum class Factors { none, groups, columns };

template <GemmConfig kConfig>
struct PromotedMainloop {
  static_assert(kConfig.promote == 1 && kConfig.m64_blocks == 1 && kConfig.tile_k() == 128);
  static_assert(kConfig.accumulator == DType::f32 && !kConfig.sparse && kConfig.terms == 1 &&
                kConfig.operand_source == OperandSource::SS);
  // One set of partial sums and turns by chunks, or two sets and turns by iterations.
  static constexpr bool kAlternates = kConfig.block_scaled && kConfig.warpgroups == 2;
  // As wide as registers allow for.
  static constexpr bool kCrowded = kConfig.n == 256 || kConfig.block_scaled;
  static constexpr int kWidest = kCrowded && !kAlternates ? 64 : 128;
  static constexpr int kChunk = kConfig.n < kWidest ? kConfig.n : kWidest;
  static constexpr int kDepth = kAlternates || kConfig.n == 256 ? 1 : 2;  // k-blocks an iteration
  static constexpr int kChunks = kConfig.n / kChunk;
  static constexpr int kGroups = (kConfig.n + kScaleBlock - 1) / kScaleBlock;
  static constexpr ptx::WgmmaType kType = wgmma_type<kConfig>(kChunk);
  static constexpr int kBlockBytes = 64 * 128;
  static constexpr int kSteps = 4;

  using ScalePipelineState = tile::PipelineState<kConfig.scale_stages()>;
  struct PipelineState : tile::PipelineState<kConfig.stages> {
    ScalePipelineState scales;
  };
  using Register = float;
  static constexpr int kRegisters = kConfig.n / 2;
  using Accumulators = float[1][kRegisters];
  using Partial = float[kChunk / 2];

  using PingPong = sm90::PingPong<kConfig>;

  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState& state,
                                  int blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators) {
    Context<Factors::none> context{shared, cluster, warpgroup, {}};
    loop(context, state, blocks, accumulators[0]);
  }

  // The same with the factors of a warp's rows from `row` and the tile's columns from `col` on.
  __device__ static void multiply_scaled(const TmaParams& params,
                                         const SharedStorage<kConfig>& shared, PipelineState& state,
                                         int row, int col, int batch, int blocks, int warpgroup,
                                         Cluster cluster, Accumulators& accumulators) {
    row += threadIdx.x % 32 / 4;
    if (scales_columns(params)) {
      Context<Factors::columns> context{shared, cluster, warpgroup, {params, row, col, batch}};
      loop(context, state, blocks, accumulators[0]);
    } else {
      Context<Factors::groups> context{shared, cluster, warpgroup, {params, row, col, batch}};
      loop(context, state, blocks, accumulators[0]);
    }
  }

 private:
  struct NoScales {};
  template <Factors kFactors>
  using Scales = std::conditional_t<kFactors == Factors::none, NoScales,
                                    RowScales<kFactors == Factors::groups ? kGroups : 0>>;

  template <Factors kFactors>
  struct Context {
    const SharedStorage<kConfig>& shared;
    Cluster cluster;
    int warpgroup;
    Scales<kFactors> scales;
  };

  // Of a k-block, as this thread needs them: those of its two rows, times those of the groups of
  // columns if there are any; or the columns' own, where they lie in stage `stage`.
  template <Factors kFactors>
  struct BlockFactors {
    float rows[2][kFactors == Factors::groups ? kGroups : 1];
    const float* columns;
    int stage;
  };

  template <Factors kFactors>
  __device__ static void loop(Context<kFactors>& context, PipelineState& state, int blocks,
                              float (&accumulators)[kRegisters]) {
#pragma unroll
    for (float& x : accumulators) x = 0;
    int block = 0;
    if constexpr (kAlternates) {
      // There is at least one.
#pragma unroll 1
      do {
        alternate(context, state, ++block < blocks, accumulators);
      } while (block < blocks);
    } else {
#pragma unroll 1
      for (; block + kDepth <= blocks; block += kDepth)
        overlap<kDepth>(context, state, blocks - block, accumulators);
      if constexpr (kDepth > 1)
        if (block < blocks) overlap<1>(context, state, 1, accumulators);
    }
  }

  // Issues the products of a chunk, as kCommits groups.
  template <int kCommits, Factors kFactors>
  __device__ static void multiply_chunk(const Context<kFactors>& context, int stage, int chunk,
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

  // One k-block, `more` if others follow, one chunk at a time; the turn passes when half of its
  // products are done.
  template <Factors kFactors>
  __device__ static void alternate(Context<kFactors>& context, PipelineState& state, bool more,
                                   float (&accumulators)[kRegisters]) {
    Partial partial;
    BlockFactors<kFactors> factors;
    const int stage = state.stage;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      PingPong::await(context.warpgroup);
      if (chunk == 0) {
        ptx::mbarrier_wait(context.shared.barriers.full(stage), state.parity);
        state.advance();
      }
      multiply_chunk<2>(context, stage, chunk, partial);
      ptx::wgmma_wait<1>();
      PingPong::pass(context.warpgroup);
      if (chunk == 0) factors = read_factors(context, more, state.scales);
      ptx::wgmma_wait<0>();
      ptx::wgmma_results(partial);
      if (chunk == kChunks - 1) release<kConfig>(context.shared, stage, context.cluster);
      add(factors, chunk, partial, accumulators);
      ptx::wgmma_results(accumulators);  // before the turn is asked for
      if (kFactors == Factors::columns && chunk == kChunks - 1)
        release_scales(context.shared, factors.stage);
    }
  }

  // kBlocks of the `left` k-blocks: one chunk is added while the next is multiplied.
  template <int kBlocks, Factors kFactors>
  __device__ static void overlap(Context<kFactors>& context, PipelineState& state, int left,
                                 float (&accumulators)[kRegisters]) {
    constexpr int kItems = kBlocks * kChunks;
    constexpr int kTurn = kItems / 2;  // chunks that are back when the turn passes
    Partial partial[2];
    int stages[kBlocks];
    BlockFactors<kFactors> factors[kBlocks];
    // Adds a finished chunk; the last one of a k-block gives its stage back.
    const auto retire = [&](int item, int stage) {
      const int block = item / kChunks, chunk = item % kChunks;
      add(factors[block], chunk, partial[item % 2], accumulators);
      if (chunk < kChunks - 1) return;
      release<kConfig>(context.shared, stage, context.cluster);
      if constexpr (kFactors == Factors::columns)
        release_scales(context.shared, factors[block].stage);
    };
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int block = item / kChunks, chunk = item % kChunks;
      if (item == 0) PingPong::await(context.warpgroup);
      if (chunk == 0) {
        stages[block] = state.stage;
        ptx::mbarrier_wait(context.shared.barriers.full(state.stage), state.parity);
        state.advance();
      }
      multiply_chunk<1>(context, stages[block], chunk, partial[item % 2]);
      if (chunk == (kChunks > 1))
        factors[block] = read_factors(context, block + 1 < left, state.scales);
      if (item == 0) continue;
      ptx::wgmma_wait<1>();
      if (item == kTurn) PingPong::pass(context.warpgroup);
      retire(item - 1, stages[(item - 1) / kChunks]);
    }
    if constexpr (kItems == 1) PingPong::pass(context.warpgroup);
    ptx::wgmma_wait<0>();
    retire(kItems - 1, stages[kBlocks - 1]);
  }

  template <Factors kFactors>
  __device__ static void add(const BlockFactors<kFactors>& factors, int chunk,
                             const Partial& partial, float (&accumulators)[kRegisters]) {
    float* sums = accumulators + chunk * (kChunk / 2);
    if constexpr (kFactors == Factors::none) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) sums[i] += partial[i];
    } else if constexpr (kFactors == Factors::groups) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i)
        sums[i] += partial[i] * factors.rows[i / 2 % 2][chunk * kChunk / kScaleBlock];
    } else {
      const float* columns = factors.columns + chunk * kChunk;
#pragma unroll
      for (int j = 0; j < kChunk / 8; ++j) {
        const float2 pair = *reinterpret_cast<const float2*>(columns + 8 * j);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[4 * j + i] +=
              partial[4 * j + i] * (factors.rows[i / 2][0] * (i % 2 ? pair.y : pair.x));
      }
    }
  }

  // When the products of the k-block are on their way.
  template <Factors kFactors>
  __device__ static BlockFactors<kFactors> read_factors(Context<kFactors>& context, bool more,
                                                        ScalePipelineState& state) {
    BlockFactors<kFactors> factors{};
    if constexpr (kFactors != Factors::none) context.scales.next(more, factors.rows);
    if constexpr (kFactors == Factors::columns) {
      ptx::mbarrier_wait(context.shared.scale_barriers.full(state.stage), state.parity);
      factors.columns = context.shared.scales_of(state.stage) + threadIdx.x % 4 * 2;
      factors.stage = state.stage;
      state.advance();
    }
    return factors;
  }

  __device__ static void release_scales(const SharedStorage<kConfig>& shared, int stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.scale_barriers.empty(stage));
  }
};

}  // namespace tcgemm::sm90
