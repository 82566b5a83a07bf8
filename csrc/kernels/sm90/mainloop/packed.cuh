// The mainloop of sm_90a with a packed weight (core/packed_weight.h): WGMMA reads a from registers,
// where it is decoded and multiplied by its scales. Its sums are those of a weight of 16 bits.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/mainloop/rs_pipeline.cuh"
#include "kernels/sm90/producer.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"
#include "tile/decode.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig>
struct PackedMainloop {
  static_assert(kConfig.has_packed_weight() && kConfig.operand_source == OperandSource::RS &&
                kConfig.layout == Layout::TN && kConfig.m64_blocks == 1 &&
                kConfig.accumulator == DType::f32);
  static constexpr ptx::WgmmaType kType = wgmma_type<kConfig>(kConfig.n);
  static constexpr int kSteps = 4;                           // of 16 of k in a stage
  static constexpr int kVectors = kConfig.weight_bits / 4;   // of 16 bytes that a lane decodes
  static constexpr int kUnitBytes = kVectors * 512;          // 16 rows of codes
  static constexpr int kRowBytes = PackedLayout::kRows * 4;  // a scale of each row

  using PipelineState = tile::PipelineState<kConfig.stages>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  using Accumulators = Register[kConfig.m64_blocks][kRegisters];
  using Fragments = std::uint32_t[kSteps][4];
  using Pair = ptx::Pair<kConfig.input>;

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
      tile::for_format<kConfig.weight_bits>(
          packed.format, packed.zeros, [&]<WeightFormat kFormat, WeightZeros kZeros>() {
            const tile::Decoder<kConfig.input, kFormat> decoder(
                kFormat == WeightFormat::table4 ? shared.code_pairs() : 0);
            if (packed.groups_in_block == 1)
              decode<kZeros, 1>(decoder, stage, unit, a);
            else if (packed.groups_in_block == 2)
              decode<kZeros, 2>(decoder, stage, unit, a);
            else if constexpr (kFormat == WeightFormat::table4)
              decode<kZeros, 4>(decoder, stage, unit, a);
          });
    };
    const auto issue = [&](std::uint32_t stage, const Fragments& a, bool accumulate) {
      const std::uint64_t b = ptx::wgmma_descriptor(stage + TmaProducer<kConfig>::kBytesA);
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::wgmma<kType>(accumulators[0], a[step], b + step * ptx::kDescriptorStep<Major::K>,
                          accumulate || step != 0);
    };
    rs_pipeline<kConfig, Fragments>(shared, state, k_blocks, cluster, accumulators[0], load, issue);
  }

 private:
  // The fragments of the 16 rows `unit` of a stage, times their scales. A block has kGroups groups.
  template <WeightZeros kZeros, int kGroups, class Decoder>
  __device__ __forceinline__ static void decode(Decoder decoder, std::uint32_t stage, int unit,
                                                Fragments& a) {
    constexpr int kGroupBytes = (kZeros == WeightZeros::none ? 1 : 2) * kRowBytes;
    const int lane = threadIdx.x % 32;
    const std::uint32_t codes = stage + unit * kUnitBytes + lane * 16;
    const std::uint32_t scales =
        stage + TmaProducer<kConfig>::kMetadataOffset + (16 * unit + lane / 4 * 2) * 4;
    uint4 words[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) words[i] = ptx::load_shared_vector(codes + i * 512);
    std::uint32_t group = scales;
    Pair factors[2] = {Pair(0u), Pair(0u)}, addends[2] = {Pair(0u), Pair(0u)};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step % (kSteps / kGroups) == 0) {
        const float2 scale = load_pair(group);
        factors[0] = Pair(scale.x);
        factors[1] = Pair(scale.y);
        if constexpr (kZeros != WeightZeros::none) {
          const float2 second = load_pair(group + kRowBytes);
          if constexpr (kZeros == WeightZeros::points) {
            decoder.set_points(second);
          } else {
            addends[0] = Pair(second.x);
            addends[1] = Pair(second.y);
          }
        }
        group += kGroupBytes;
      }
      decoder.decode(words, step, a[step]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Pair value(a[step][i]);
        if constexpr (kZeros == WeightZeros::offsets)
          a[step][i] = Pair::fma(value, factors[i % 2], addends[i % 2]).bits();
        else
          a[step][i] = (value * factors[i % 2]).bits();
      }
    }
  }

  __device__ static float2 load_pair(std::uint32_t address) {
    const uint2 pair = ptx::load_shared_pair(address);
    return {__uint_as_float(pair.x), __uint_as_float(pair.y)};
  }
};

}  // namespace tcgemm::sm90
