// The sm_90a mainloop of 2:4 GEMMs (core/sparse.h): wgmma.sp reads the values of a and b from
// shared memory, and the metadata from registers. docs/dev/kernels/sm90-sparse.md says what limits
// it and what was tried.
#pragma once

#include <cstdint>
#include <utility>

#include "catalog.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/mainloop/rs_pipeline.cuh"
#include "kernels/sm90/producer.cuh"
#include "ptx/shared.cuh"
#include "ptx/uniform.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The content of a stage, which is two steps:
//
//   stage:  a: tile_m rows of 64 bytes of values | b: as in producer.cuh | metadata
//           one step: 32 bytes of values, 64 bytes of k of b
template <GemmConfig kConfig>
struct SparseMainloop {
  static_assert(kConfig.is_sparse() && kConfig.m64_blocks == 1 &&
                major_a(kConfig.layout) == Major::K);
  static constexpr ptx::WgmmaType kType = wgmma_type<kConfig>(kConfig.n);
  static constexpr int kSteps = 2;
  static constexpr int kBlockBytes = 64 * kConfig.row_bytes_a();
  // 8-bit types have one metadata word a step. Others have one word a stage: wgmma.sp selects the
  // half of the lanes that holds the metadata of a step.
  static constexpr int kMetadataWords = bits(kConfig.input) == 8 ? kSteps : 1;
  static constexpr int kMetadataBytes =
      MetadataTiles::kLanes * kMetadataWords * 4;  // for a warpgroup

  using PipelineState = tile::PipelineState<kConfig.stages>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  using Accumulators = Register[kConfig.m64_blocks][kRegisters];
  using Metadata = std::uint32_t[kMetadataWords];

  // Computes all k-blocks of a tile. The first WGMMA overwrites `accumulators`.
  template <class Meanwhile>
  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState state,
                                  int k_blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators, const Meanwhile& meanwhile) {
    meanwhile();
    const std::uint32_t offset_a = ptx::uniform(warpgroup * kBlockBytes);
    const std::uint32_t offset_metadata =
        TmaProducer<kConfig>::kMetadataOffset + warpgroup * kMetadataBytes +
        threadIdx.x % MetadataTiles::kLanes * (kMetadataWords * 4);
    const auto load = [&](std::uint32_t stage, Metadata& metadata) {
      if constexpr (kMetadataWords == 1) {
        metadata[0] = ptx::load_shared_b32(stage + offset_metadata);
      } else {
        const uint2 pair = ptx::load_shared_pair(stage + offset_metadata);
        metadata[0] = pair.x, metadata[1] = pair.y;
      }
    };
    const auto issue = [&](std::uint32_t stage, const Metadata& metadata, bool accumulate) {
      multiply_stage(stage + offset_a, stage + TmaProducer<kConfig>::kBytesA, metadata, accumulate,
                     accumulators[0]);
    };
    rs_pipeline<kConfig, Metadata>(shared, state, k_blocks, cluster, accumulators[0], load, issue);
  }

 private:
  __device__ static void multiply_stage(std::uint32_t address_a, std::uint32_t address_b,
                                        const Metadata& metadata, bool accumulate,
                                        Register (&accumulators)[kRegisters]) {
    const std::uint64_t a = ptx::wgmma_descriptor<Major::K, kConfig.row_bytes_a()>(address_a);
    const std::uint64_t b = ptx::wgmma_descriptor(address_b);
    [&]<int... kStep>(std::integer_sequence<int, kStep...>) {
      (ptx::wgmma_sparse<kType, kMetadataWords == 1 ? kStep : 0>(
           accumulators, a + kStep * ptx::kDescriptorStep<Major::K>,
           metadata[kStep % kMetadataWords],
           b + kStep * 2 * ptx::kDescriptorStep<major_b(kConfig.layout)>, accumulate || kStep != 0),
       ...);
    }(std::make_integer_sequence<int, kSteps>{});
  }
};

}  // namespace tcgemm::sm90
