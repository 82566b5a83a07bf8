// The mainloop of promoted products: tensor cores keep about 14 bits of an fp8 sum, so the sums of
// a k-block (128 of k) are added to a second set of accumulators in f32, scaled where the operands'
// blocks have scales.
//
//   k-block 0   chunk 0: wgmma -> partial[0]
//               chunk 1: wgmma -> partial[1]      meanwhile: accumulators of chunk 0 += partial[0]
//               chunk 2: wgmma -> partial[0]      meanwhile: accumulators of chunk 1 += partial[1]
//               ...
//
// A chunk is kChunk columns of the tile: while the tensor cores work on one, the ordinary ones add
// another. Groups in flight stay inside one iteration of the loop, which ptxas asks for.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "kernels/sm90/mainloop.cuh"
#include "kernels/sm90/ring.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

template <Kernel kRow>
struct Promoted {
  static_assert(kRow.promote == 1 && kRow.m64_blocks == 1 && kRow.tile_k() == 128);
  static_assert(kRow.accumulator == DType::f32 && !kRow.sparse && kRow.parts == 1 &&
                kRow.source_of_a == SourceOfA::shared);
  static constexpr int kChunk = kRow.n >= 256 ? 64 : kRow.n >= 128 ? kRow.n / 2 : kRow.n;
  static constexpr int kChunks = kRow.n / kChunk;
  static constexpr int kDepth = 2;  // k-blocks an iteration
  static constexpr ptx::WgmmaType kType = wgmma_type<kRow>(kChunk);
  static constexpr int kBlockBytes = 64 * 128;
  static constexpr int kSteps = 4;

  using Position = tile::Position<kRow.stages>;
  using Register = float;
  static constexpr int kRegisters = kRow.n / 2;
  using Accumulators = float[1][kRegisters];
  using Partial = float[kChunk / 2];

  __device__ static void multiply(const Sm90Params& params, const Block<kRow>& shared,
                                  Position& position, int blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators) {
#pragma unroll
    for (float& x : accumulators[0]) x = 0;
    const Context context{params, shared, cluster, warpgroup};
    int block = 0;
#pragma unroll 1
    for (; block + kDepth <= blocks; block += kDepth)
      iterate<kDepth>(context, position, accumulators[0]);
#pragma unroll 1
    for (; block < blocks; ++block) iterate<1>(context, position, accumulators[0]);
  }

 private:
  struct Context {
    const Sm90Params& params;
    const Block<kRow>& shared;
    Cluster cluster;
    int warpgroup;
  };

  // The scales of a stage, as this thread needs them.
  struct StageScales {
    const float* columns;
    float rows[2];
  };

  template <int kBlocks>
  __device__ static void iterate(const Context& context, Position& position,
                                 float (&accumulators)[kRegisters]) {
    Partial partial[2];
    int stages[kBlocks];
    StageScales scales[kBlocks];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      stages[block] = position.stage;
      ptx::mbarrier_wait(context.shared.barriers.full(position.stage), position.parity);
      if constexpr (kRow.block_scaled) scales[block] = read_scales(context, position.stage);
      const std::uint32_t stage = context.shared.stage(position.stage);
      const std::uint64_t a = ptx::wgmma_descriptor(stage + context.warpgroup * kBlockBytes);
      const std::uint64_t b = ptx::wgmma_descriptor(stage + Ring<kRow>::kBytesA);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const int item = block * kChunks + chunk;
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::wgmma<kType>(partial[item % 2], a + step * 2,
                            b + chunk * (kChunk * 128 >> 4) + step * 2, step != 0);
        ptx::wgmma_commit();
        if (item > 0) {
          ptx::wgmma_wait<1>();
          retire(context, stages, scales, item - 1, partial[(item - 1) % 2], accumulators);
        }
      }
      position.advance();
    }
    constexpr int kLast = kBlocks * kChunks - 1;
    ptx::wgmma_wait<0>();
    retire(context, stages, scales, kLast, partial[kLast % 2], accumulators);
  }

  // Adds a finished chunk; the last one of a k-block gives its stage back.
  template <int kBlocks>
  __device__ static void retire(const Context& context, const int (&stages)[kBlocks],
                                const StageScales (&scales)[kBlocks], int item,
                                const Partial& partial, float (&accumulators)[kRegisters]) {
    const int block = item / kChunks, chunk = item % kChunks;
    if constexpr (kRow.block_scaled)
      add_scaled(context, scales[block], chunk, partial, accumulators);
    else
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) accumulators[chunk * (kChunk / 2) + i] += partial[i];
    if (chunk == kChunks - 1)
      Readers<kRow>::release(context.shared, stages[block], context.cluster);
  }

  __device__ static StageScales read_scales(const Context& context, int stage) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const float* first = context.shared.scales_of(stage);
    const float* rows = first + context.warpgroup * 64 + warp * 16 + lane / 4;
    return {first + kRow.tile_m() + lane % 4 * 2, {rows[0], rows[8]}};
  }

  // accumulators += partial * scale_a * scale_b. Where one value of b serves the 128 columns around
  // a chunk, it joins the rows' factors.
  __device__ static void add_scaled(const Context& context, const StageScales& scales, int chunk,
                                    const Partial& partial, float (&accumulators)[kRegisters]) {
    const Multiplier& scale_b = context.params.scale_b;
    const float* columns = scales.columns + chunk * kChunk;
    float* sums = accumulators + chunk * (kChunk / 2);
    if (scale_b.shift != 0 || scale_b.stride == 0) {
      const float factors[2] = {scales.rows[0] * columns[0], scales.rows[1] * columns[0]};
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) sums[i] += partial[i] * factors[i / 2 % 2];
    } else {
#pragma unroll
      for (int j = 0; j < kChunk / 8; ++j) {
        const float2 pair = *reinterpret_cast<const float2*>(columns + 8 * j);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[4 * j + i] += partial[4 * j + i] * (scales.rows[i / 2] * (i % 2 ? pair.y : pair.x));
      }
    }
  }
};

}  // namespace tcgemm::sm90
