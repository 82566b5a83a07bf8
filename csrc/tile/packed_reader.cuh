// Sixteen rows of a packed weight in shared memory (core/packed_weight.h), decoded and times their
// scales: a block of 64 of k is read, and 16 of k are decoded at a time.
#pragma once

#include <cstdint>

#include "core/packed_weight.h"
#include "core/params.h"
#include "ptx/shared.cuh"
#include "tile/decode.cuh"

namespace tcgemm::tile {

// The addresses of a block in shared memory: its codes, the scales of its groups, and the values of
// code_pairs.cuh, which table4 has.
struct PackedBlock {
  std::uint32_t codes, scales, code_pairs;
};

// kGroups: the groups of a block, or any number if it has one. kHasZeros: the weight may have
// points or offsets. Decoding has no branch: ptxas would wait for each WGMMA if one stood between
// them (C7513).
template <DType kType, WeightFormat kFormat, int kGroups, bool kHasZeros>
class PackedReader {
 public:
  static constexpr int kSteps = PackedLayout::kSteps;
  static constexpr int kVectors = bits(kFormat) / 4;         // of 16 bytes that a lane decodes
  static constexpr int kUnitBytes = kVectors * 512;          // 16 rows of codes
  static constexpr int kRowBytes = PackedLayout::kRows * 4;  // a scale of each row
  using Fragments = std::uint32_t[kSteps][4];

  // The rows `unit` of each block.
  __device__ PackedReader(const PackedParams& packed, int unit, std::uint32_t code_pairs)
      : zeros_(packed.zeros),
        group_bytes_(packed.groups_in_block == 1 ? 0 : packed.vectors * kRowBytes) {
    const int lane = threadIdx.x % 32;
    codes_offset_ = unit * kUnitBytes + lane * 16;
    scales_offset_ = (16 * unit + lane / 4 * 2) * 4;
    if constexpr (kVectors == 1) scales_offset_ = 0;
#pragma unroll
    for (auto& decoder : decoders_) decoder = Decoder<kType, kFormat>(code_pairs);
  }

  // A lane reads this of a block.
  struct Words {
    uint4 codes[kVectors];
    float2 scales[kGroups], zeros[kHasZeros ? kGroups : 1];
  };

  __device__ __forceinline__ Words read(const PackedBlock& block) const {
    Words read;
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      read.codes[i] = ptx::load_shared_vector(block.codes + codes_offset_ + i * 512);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const std::uint32_t offset = kVectors == 1 ? codes_offset_ >> 3 & ~7u : scales_offset_;
      const std::uint32_t address = block.scales + offset + i * group_bytes_;
      read.scales[i] = load_pair(address);
      if constexpr (kHasZeros) read.zeros[i] = load_pair(address + kRowBytes);
    }
    return read;
  }

  // The block that decode() decodes. A branch would stand between WGMMAs, so what a weight without
  // zeros does not have is read and not used.
  __device__ __forceinline__ void take(const Words& block) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) words_[i] = block.codes[i];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      factors_[i].of[0] = Pair(block.scales[i].x);
      factors_[i].of[1] = Pair(block.scales[i].y);
      if constexpr (kHasZeros) {
        const bool points = zeros_ == WeightZeros::points, offsets = zeros_ == WeightZeros::offsets;
        decoders_[i].set_points({points ? block.zeros[i].x : 8, points ? block.zeros[i].y : 8});
        addends_[i].of[0] = Pair(offsets ? block.zeros[i].x : 0);
        addends_[i].of[1] = Pair(offsets ? block.zeros[i].y : 0);
      }
    }
  }

  // The fragment of step `step` of the block that was read.
  __device__ __forceinline__ void decode(int step, std::uint32_t (&a)[4]) const {
    const int group = step / (kSteps / kGroups);
    decoders_[kHasZeros ? group : 0].decode(words_, step, a);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if constexpr (kHasZeros)
        a[i] = Pair::fma(Pair(a[i]), factors_[group].of[i % 2], addends_[group].of[i % 2]).bits();
      else
        a[i] = (Pair(a[i]) * factors_[group].of[i % 2]).bits();
  }

  // All fragments of a block.
  __device__ __forceinline__ void load(const PackedBlock& block, Fragments& a) {
    take(read(block));
#pragma unroll
    for (int step = 0; step < kSteps; ++step) decode(step, a[step]);
  }

 private:
  using Pair = ptx::Pair<kType>;
  struct OfRows {
    Pair of[2] = {Pair(0u), Pair(0u)};  // rows 2 g and 2 g + 1
  };

  __device__ static float2 load_pair(std::uint32_t address) {
    const uint2 pair = ptx::load_shared_pair(address);
    return {__uint_as_float(pair.x), __uint_as_float(pair.y)};
  }

  WeightZeros zeros_;  // at run time, if kHasZeros
  int group_bytes_;    // from one group of a block to the next; 0 if it has one
  std::uint32_t codes_offset_, scales_offset_;
  uint4 words_[kVectors];
  Decoder<kType, kFormat> decoders_[kHasZeros ? kGroups : 1];
  OfRows factors_[kGroups], addends_[kHasZeros ? kGroups : 1];
};

// Calls visit.operator()<PackedReader<..>>() for the layout at run time. int4 has two visits: for
// the usual layout, which has one group in a block and no zeros, and for all others.
template <DType kType, int kBits, class Visit>
__device__ __forceinline__ void for_reader(const PackedParams& packed, const Visit& visit) {
  using enum WeightFormat;
  static_assert(kWeightFormats == 5 && kWeightZeros == 3);
  constexpr WeightFormat kFirst = kBits == 8 ? int8 : int4, kSecond = kBits == 8 ? e4m3 : table4;
  const int groups = packed.groups_in_block;
  if (packed.format == kFirst) {
    if (__builtin_expect((groups == 1) & (packed.zeros == WeightZeros::none), true))
      visit.template operator()<PackedReader<kType, kFirst, 1, false>>();
    else
      visit.template operator()<PackedReader<kType, kFirst, 2, kFirst == int4>>();
  } else if (groups == 1) {
    visit.template operator()<PackedReader<kType, kSecond, 1, false>>();
  } else if (kSecond != table4 || groups == 2) {
    visit.template operator()<PackedReader<kType, kSecond, 2, false>>();
  } else if constexpr (kSecond == table4) {
    visit.template operator()<PackedReader<kType, kSecond, 4, false>>();
  }
}

}  // namespace tcgemm::tile
