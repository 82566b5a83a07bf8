// The mainloop of sm_90a with a packed weight (core/packed_weight.h): WGMMA reads a from registers,
// where it is decoded and multiplied by its scales. Its sums are those of a weight of 16 bits.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/mainloop/packed_stage.cuh"
#include "kernels/sm90/mainloop/rs_pipeline.cuh"
#include "kernels/sm90/producer.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"
#include "tile/decode.cuh"
#include "tile/fragment.cuh"
#include "tile/packed_fragments.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig>
struct PackedMainloop {
  static_assert(kConfig.has_packed_weight() && kConfig.operand_source == OperandSource::RS &&
                kConfig.layout == Layout::TN && kConfig.m64_blocks == 1 &&
                kConfig.accumulator == DType::f32);
  static constexpr ptx::WgmmaType kType = wgmma_type<kConfig>(kConfig.n);

  using PipelineState = tile::PipelineState<kConfig.stages>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  using Accumulators = Register[kConfig.m64_blocks][kRegisters];
  using Loader = tile::PackedFragments<kConfig.input, kConfig.weight_bits>;
  using Fragments = typename Loader::Fragments;

  // Computes all k-blocks of a tile. The first WGMMA overwrites `accumulators`. The format is a
  // branch in each k-block: with a loop for each format, 128x256 spills where the loops join.
  template <class Meanwhile>
  __device__ __forceinline__ static void multiply_packed(const TmaParams& params,
                                                         const SharedStorage<kConfig>& shared,
                                                         PipelineState state, int k_blocks,
                                                         int warpgroup, Cluster cluster,
                                                         Accumulators& accumulators,
                                                         const Meanwhile& meanwhile) {
    meanwhile();
    const PackedParams& packed = params.packed;
    const int unit = warpgroup * 4 + threadIdx.x / 32 % 4;
    const auto load = [&](std::uint32_t stage, Fragments& a) {
      tile::for_layout<kConfig.weight_bits>(
          packed, [&]<WeightFormat kFormat, WeightZeros kZeros, int kGroups>() {
            Loader::template load<kFormat, kZeros, kGroups>(packed_block(shared, stage), unit, a);
          });
    };
    const auto issue = [&](std::uint32_t stage, const Fragments& a, bool accumulate) {
      const std::uint64_t b = ptx::wgmma_descriptor(stage + TmaProducer<kConfig>::kBytesA);
#pragma unroll
      for (int step = 0; step < Loader::kSteps; ++step)
        ptx::wgmma<kType>(accumulators[0], a[step], b + step * ptx::kDescriptorStep<Major::K>,
                          accumulate || step != 0);
    };
    rs_pipeline<kConfig, Fragments>(shared, state, k_blocks, cluster, accumulators[0], load, issue);
  }
};

}  // namespace tcgemm::sm90
