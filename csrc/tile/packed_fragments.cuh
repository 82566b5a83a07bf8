// The fragments of a packed weight in shared memory (core/packed_weight.h): 64 of k of a block of
// 128 rows, decoded and times their scales.
#pragma once

#include <cstdint>

#include "core/packed_weight.h"
#include "ptx/shared.cuh"
#include "tile/decode.cuh"

namespace tcgemm::tile {

// The addresses of a block in shared memory: its codes, the scales of its groups, and the values of
// code_pairs.cuh, which table4 has.
struct PackedBlock {
  std::uint32_t codes, scales, code_pairs;
};

template <DType kType, int kBits>
struct PackedFragments {
  static constexpr int kSteps = PackedLayout::kDepth / 16;
  static constexpr int kVectors = kBits / 4;                 // of 16 bytes that a lane decodes
  static constexpr int kUnitBytes = kVectors * 512;          // 16 rows of codes
  static constexpr int kRowBytes = PackedLayout::kRows * 4;  // a scale of each row

  using Fragments = std::uint32_t[kSteps][4];
  using Pair = ptx::Pair<kType>;

  // The 16 rows `unit` of a block with kGroups groups.
  template <WeightFormat kFormat, WeightZeros kZeros, int kGroups>
  __device__ __forceinline__ static void load(const PackedBlock& block, int unit, Fragments& a) {
    constexpr int kGroupBytes = (kZeros == WeightZeros::none ? 1 : 2) * kRowBytes;
    Decoder<kType, kFormat> decoder(kFormat == WeightFormat::table4 ? block.code_pairs : 0);
    const int lane = threadIdx.x % 32;
    const std::uint32_t codes = block.codes + unit * kUnitBytes + lane * 16;
    uint4 words[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) words[i] = ptx::load_shared_vector(codes + i * 512);
    std::uint32_t group = block.scales + (16 * unit + lane / 4 * 2) * 4;
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

 private:
  __device__ static float2 load_pair(std::uint32_t address) {
    const uint2 pair = ptx::load_shared_pair(address);
    return {__uint_as_float(pair.x), __uint_as_float(pair.y)};
  }
};

}  // namespace tcgemm::tile
