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
// last chunk. Two warpgroups that do so at the same time leave the tensor cores idle; left alone
// they fall into step, since both wait for the same stages. So they take turns: one begins an
// iteration when the other has its first chunk back.
//
// Tried on an H200, e4m3 to bf16, 4096 and 8192, x torch._scaled_mm without fast accumulation: no
// turns 0.87 and 0.81, with them 0.98 and 0.95 (128x256, chunks of 64, one k-block an iteration).
// 128x128: chunks of 128, two k-blocks 0.93 and 0.88; chunks of 64, four k-blocks 0.88 and 0.83. a
// in registers, for fewer reads of shared memory: 0.95 and 0.91, its loads stand before each
// iteration.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "kernels/sm90/mainloop.cuh"
#include "kernels/sm90/ring.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// What multiplies the partial sums: nothing, a factor a row and 128 columns, or a factor a row and
// column.
enum class Factors { none, groups, columns };

template <Kernel kRow>
struct Promoted {
  static_assert(kRow.promote == 1 && kRow.m64_blocks == 1 && kRow.tile_k() == 128);
  static_assert(kRow.accumulator == DType::f32 && !kRow.sparse && kRow.parts == 1 &&
                kRow.source_of_a == SourceOfA::shared && kRow.warpgroups <= 2);
  // As wide as registers allow for.
  static constexpr int kChunk = kRow.n == 256 || kRow.block_scaled ? 64 : kRow.n;
  static constexpr int kDepth = kRow.n == 256 ? 1 : 2;  // k-blocks an iteration
  static constexpr int kChunks = kRow.n / kChunk;
  static constexpr int kGroups = (kRow.n + kScaleBlock - 1) / kScaleBlock;
  static constexpr ptx::WgmmaType kType = wgmma_type<kRow>(kChunk);
  static constexpr int kBlockBytes = 64 * 128;
  static constexpr int kSteps = 4;

  using ScalePosition = tile::Position<kRow.scale_stages()>;
  struct Position : tile::Position<kRow.stages> {
    ScalePosition scales;
  };
  using Register = float;
  static constexpr int kRegisters = kRow.n / 2;
  using Accumulators = float[1][kRegisters];
  using Partial = float[kChunk / 2];

  // Once, before the first tile: the first turn is the first warpgroup's.
  __device__ static void begin(int warpgroup) {
    if (warpgroup == 1) pass_turn(warpgroup);
  }

  __device__ static void multiply(const Sm90Params& params, const Block<kRow>& shared,
                                  Position& position, int blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators) {
    const Context context{shared, cluster, warpgroup};
#pragma unroll
    for (float& x : accumulators[0]) x = 0;
    if constexpr (!kRow.block_scaled)
      loop<Factors::none>(context, position, blocks, accumulators[0]);
    else if (params.scale_b.shift != 0 || params.scale_b.stride == 0)
      loop<Factors::groups>(context, position, blocks, accumulators[0]);
    else
      loop<Factors::columns>(context, position, blocks, accumulators[0]);
  }

 private:
  struct Context {
    const Block<kRow>& shared;
    Cluster cluster;
    int warpgroup;
  };

  // Of a stage, as this thread needs them: those of its two rows, times those of the groups of
  // columns if there are any.
  struct StageFactors {
    float rows[2][kGroups];
    const float* columns;
    int stage;
  };

  __device__ static void await_turn(int warpgroup) {
    if constexpr (kRow.warpgroups == 2) ptx::named_barrier_sync(1 + warpgroup, 256);
  }
  __device__ static void pass_turn(int warpgroup) {
    if constexpr (kRow.warpgroups == 2) ptx::named_barrier_arrive(2 - warpgroup, 256);
  }

  template <Factors kFactors>
  __device__ static void loop(const Context& context, Position& position, int blocks,
                              float (&accumulators)[kRegisters]) {
    int block = 0;
#pragma unroll 1
    for (; block + kDepth <= blocks; block += kDepth)
      iterate<kFactors, kDepth>(context, position, accumulators);
    if constexpr (kDepth > 1)
      if (block < blocks) iterate<kFactors, 1>(context, position, accumulators);
  }

  template <Factors kFactors, int kBlocks>
  __device__ static void iterate(const Context& context, Position& position,
                                 float (&accumulators)[kRegisters]) {
    constexpr int kItems = kBlocks * kChunks;
    constexpr int kTurn = kItems / 2;  // chunks that are back when the turn passes
    Partial partial[2];
    int stages[kBlocks];
    StageFactors factors[kBlocks];
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int block = item / kChunks, chunk = item % kChunks;
      if (item == 0) await_turn(context.warpgroup);
      if (chunk == 0) {
        stages[block] = position.stage;
        ptx::mbarrier_wait(context.shared.barriers.full(position.stage), position.parity);
        position.advance();
      }
      const std::uint32_t stage = context.shared.stage(stages[block]);
      const std::uint64_t a = ptx::wgmma_descriptor(stage + context.warpgroup * kBlockBytes);
      const std::uint64_t b =
          ptx::wgmma_descriptor(stage + Ring<kRow>::kBytesA) + chunk * (kChunk * 128 >> 4);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::wgmma<kType>(partial[item % 2], a + step * ptx::kDescriptorStep<Major::K>,
                          b + step * ptx::kDescriptorStep<Major::K>, step != 0);
      ptx::wgmma_commit();
      if (chunk == (kChunks > 1)) factors[block] = read_factors<kFactors>(context, position.scales);
      if (item == 0) continue;
      ptx::wgmma_wait<1>();
      if (item == kTurn) pass_turn(context.warpgroup);
      retire<kFactors>(context, stages, factors, item - 1, partial[(item - 1) % 2], accumulators);
    }
    if constexpr (kItems == 1) pass_turn(context.warpgroup);
    ptx::wgmma_wait<0>();
    retire<kFactors>(context, stages, factors, kItems - 1, partial[(kItems - 1) % 2], accumulators);
  }

  // Adds a finished chunk; the last one of a k-block gives its stage back.
  template <Factors kFactors, int kBlocks>
  __device__ static void retire(const Context& context, const int (&stages)[kBlocks],
                                const StageFactors (&factors)[kBlocks], int item,
                                const Partial& partial, float (&accumulators)[kRegisters]) {
    const int block = item / kChunks, chunk = item % kChunks;
    const int group = chunk * kChunk / kScaleBlock;
    float* sums = accumulators + chunk * (kChunk / 2);
    if constexpr (kFactors == Factors::none) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) sums[i] += partial[i];
    } else if constexpr (kFactors == Factors::groups) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i)
        sums[i] += partial[i] * factors[block].rows[i / 2 % 2][group];
    } else {
      const float* columns = factors[block].columns + chunk * kChunk;
#pragma unroll
      for (int j = 0; j < kChunk / 8; ++j) {
        const float2 pair = *reinterpret_cast<const float2*>(columns + 8 * j);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[4 * j + i] +=
              partial[4 * j + i] * (factors[block].rows[i / 2][group] * (i % 2 ? pair.y : pair.x));
      }
    }
    if (chunk < kChunks - 1) return;
    release<kRow>(context.shared, stages[block], context.cluster);
    if constexpr (kFactors == Factors::columns) release_scales(context, factors[block].stage);
  }

  // Read when the products of the k-block are on their way. Factors of groups stay in registers.
  template <Factors kFactors>
  __device__ static StageFactors read_factors(const Context& context, ScalePosition& position) {
    StageFactors factors{};
    if constexpr (kFactors != Factors::none) {
      const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
      ptx::mbarrier_wait(context.shared.scale_barriers.full(position.stage), position.parity);
      const float* a = context.shared.scales_of(position.stage);
      const float* b = a + kRow.tile_m();
      a += context.warpgroup * 64 + warp * 16 + lane / 4;
      factors.columns = b + lane % 4 * 2;
      factors.stage = position.stage;
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          factors.rows[half][group] =
              a[8 * half] * (kFactors == Factors::groups ? b[group * kScaleBlock] : 1.0f);
      if constexpr (kFactors == Factors::groups) release_scales(context, position.stage);
      position.advance();
    }
    return factors;
  }

  __device__ static void release_scales(const Context& context, int stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(context.shared.scale_barriers.empty(stage));
  }
};

}  // namespace tcgemm::sm90
