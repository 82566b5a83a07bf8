// The mainloop whose a is sparse along k (core/sparse.h): wgmma.sp reads its values and b from
// shared memory, and the metadata from registers.
//
//   stage:  a: tile_m rows of 64 bytes of values | b: as in ring.cuh | metadata
//           one step: 32 bytes of values, 64 bytes of k of b
//
// A stage is two steps. Tensor cores that are twice as fast as with a dense a read b from shared
// memory at all of its 128 bytes a clock: of 650 clocks that a k-block of 128x256 takes on an H200
// the tensor cores need 512, and these reads 562.
//
// From 2048^3 on all of that runs at the GPU's power cap, where idle clocks cost next to nothing.
// So it was no use to let the warpgroups take turns at their epilogues, or one of them lag two to
// four k-blocks behind (bf16, tf32: the same time, or up to 6 % more); and clusters of four, which
// read b from L2 half as often as those of two, take 1.4 times as long.
#pragma once

#include <cstdint>
#include <utility>

#include "catalog.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/mainloop/rs_pipeline.cuh"
#include "kernels/sm90/producer.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig>
struct SparseMainloop {
  static_assert(kConfig.sparse && kConfig.terms == 1 && !kConfig.promotes() &&
                kConfig.m64_blocks == 1 && kConfig.operand_source == OperandSource::SS &&
                major_a(kConfig.layout) == Major::K);
  static constexpr ptx::WgmmaType kType = wgmma_type<kConfig>(kConfig.n);
  static constexpr int kSteps = 2;
  static constexpr int kBlockBytes = 64 * kConfig.row_bytes_a();
  // 8-bit types have a word a step, others one whose halves of lanes belong to a step each.
  static constexpr int kMetadataWords = bits(kConfig.input) == 8 ? kSteps : 1;
  static constexpr int kMetadataBytes =
      MetadataTiles::kLanes * kMetadataWords * 4;  // of a warpgroup

  using PipelineState = tile::PipelineState<kConfig.stages>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  using Accumulators = Register[kConfig.m64_blocks][kRegisters];
  using Metadata = std::uint32_t[kMetadataWords];

  // The products of all k-blocks into `accumulators`, which need no clearing.
  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState& state,
                                  int k_blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators) {
    const std::uint32_t offset_a = warpgroup * kBlockBytes;
    const std::uint32_t offset_metadata =
        TmaProducer<kConfig>::kMetadataOffset + warpgroup * kMetadataBytes +
        threadIdx.x % MetadataTiles::kLanes * (kMetadataWords * 4);
    const auto load = [&](std::uint32_t stage, Metadata& metadata) {
      if constexpr (kMetadataWords == 1) {
        metadata[0] = ptx::load_shared_word(stage + offset_metadata);
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
