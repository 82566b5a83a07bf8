// The mainloop of sm_90a with a packed weight and few rows of the activation: mma.sync multiplies
// the decoded weight, 16 or 32 rows a warp, by an activation that all warps share.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/mainloop/packed_stage.cuh"
#include "kernels/sm90/producer.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "tile/decode.cuh"
#include "tile/fragment.cuh"
#include "tile/packed_reader.cuh"
#include "tile/pipeline.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig>
struct PackedMmaMainloop {
  static_assert(kConfig.is_packed_mma() && kConfig.layout == Layout::TN &&
                kConfig.accumulator == DType::f32);
  using PipelineState = tile::PipelineState<kConfig.stages>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kBlocks = kConfig.m64_blocks;  // a warp has 16 rows of each
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  using Accumulators = Register[kBlocks][kRegisters];
  static constexpr int kSteps = PackedLayout::kSteps;
  using Fragments = std::uint32_t[kBlocks][kSteps][4];

  // Computes all k-blocks of a tile.
  template <class, class Meanwhile>
  __device__ __forceinline__ static void multiply_packed(const TmaParams& params,
                                                         const SharedStorage<kConfig>& shared,
                                                         PipelineState state, int k_blocks,
                                                         int warpgroup, Cluster cluster,
                                                         Accumulators& accumulators,
                                                         const Meanwhile& meanwhile) {
    meanwhile();
#pragma unroll
    for (auto& sums : accumulators)
#pragma unroll
      for (float& sum : sums) sum = 0;
    const int unit = warpgroup * 4 * kBlocks + threadIdx.x / 32 % 4;
    tile::for_reader<kConfig.input, kConfig.weight_bits>(params.packed, [&]<class Reader>() {
#pragma unroll 1
      for (int block = 0; block < k_blocks; ++block) {
        shared.barriers.consumer_wait(state);
        const std::uint32_t stage = shared.stage(state.stage);
        Fragments a;
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
          Reader(params.packed, unit + 4 * i, shared.code_pairs())
              .load(packed_block(shared, stage), a[i]);
        multiply(stage + TmaProducer<kConfig>::kBytesA, a, accumulators);
        __syncwarp();
        consumer_release<kConfig>(shared, state.stage, cluster);
        state.advance();
      }
    });
  }

 private:
  // A row of b, a column of the tile, has 128 bytes in a stage.
  __device__ __forceinline__ static void multiply(std::uint32_t b, const Fragments& a,
                                                  Accumulators& accumulators) {
    const int row = threadIdx.x % 8, matrix = threadIdx.x % 32 / 8;
#pragma unroll
    for (int j = 0; j < kConfig.n / 8; ++j) {
      std::uint32_t columns[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        ptx::ldmatrix_x4<false>(columns[half],
                                b + j * 1024 + tile::swizzle128(row, 4 * half + matrix));
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
          ptx::mma_sync<kConfig.input, kConfig.input_b>(accumulators[i] + 4 * j, a[i][step],
                                                        &columns[step / 2][step % 2 * 2]);
    }
  }
};

}  // namespace tcgemm::sm90
