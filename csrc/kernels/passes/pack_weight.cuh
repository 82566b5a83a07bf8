// Packs a weight (core/pack_weight.h). A power of two of lanes shares a group.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/pack_weight.h"
#include "kernels/passes/values.cuh"
#include "kernels/passes/vector_reader.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

// A lane reads chunks of kPackElements elements: number `lane` of its group, and those `lanes`
// further. With kCached a group has one chunk for each lane, which stays in registers; longer
// groups are read again for each sum.
template <DType kType, bool kCached>
class GroupReader {
 public:
  __device__ GroupReader(const kernels::PackWeightParams& params, std::int64_t index, int lane)
      : params_(params), lane_(lane) {
    const std::int64_t row = index / params.groups_in_row;
    column_ = (index - row * params.groups_in_row) * params.group;
    start_ = static_cast<const char*>(params.w.data) +
             (row * params.w.stride_row + column_ * params.w.stride_col) * kSize;
    if constexpr (kCached) load(lane, cached_);
  }

  // Calls visit(first element of the chunk in the group, elements, how many there are).
  template <class Visit>
  __device__ __forceinline__ void for_each_chunk(const Visit& visit) const {
    if constexpr (kCached) {
      visit(lane_ * kPackElements, cached_, count(lane_));
    } else {
#pragma unroll 1
      for (std::int64_t chunk = lane_; chunk * kPackElements < params_.group;
           chunk += params_.lanes) {
        float x[kPackElements];
        load(chunk, x);
        visit(chunk * kPackElements, x, count(chunk));
      }
    }
  }

  __device__ std::int64_t column() const { return column_; }

 private:
  static constexpr int kSize = bytes(kType);

  __device__ int count(std::int64_t chunk) const {
    const std::int64_t left = params_.group - chunk * kPackElements;
    return left < 0 ? 0 : left < kPackElements ? int(left) : kPackElements;
  }

  // Elements outside of the group are 0, which changes no sum and no range.
  __device__ void load(std::int64_t chunk, float (&x)[kPackElements]) const {
    const int count = this->count(chunk);
    const char* const from = start_ + chunk * kPackElements * params_.w.stride_col * kSize;
    if (params_.w.row_vectors && count == kPackElements) {
      if constexpr (kType == DType::f32) {
        const auto* const vectors = reinterpret_cast<const float4*>(from);
        const float4 low = vectors[0], high = vectors[1];
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
      } else {
        unpack<kType>(*reinterpret_cast<const uint4*>(from), x);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kPackElements; ++i)
      x[i] = i < count ? element(from + i * params_.w.stride_col * kSize) : 0.0f;
  }

  __device__ static float element(const char* from) {
    if constexpr (kType == DType::f32) return *reinterpret_cast<const float*>(from);
    const std::uint32_t bits = *reinterpret_cast<const std::uint16_t*>(from);
    return kType == DType::f16 ? ptx::unpack_f16(bits).x : ptx::unpack_bf16(bits).x;
  }

  const kernels::PackWeightParams& params_;
  const char* start_;
  std::int64_t column_;
  int lane_;
  float cached_[kCached ? kPackElements : 1];
};

__device__ inline void store_codes(const kernels::PackWeightParams& params, std::int64_t row,
                                   std::int64_t column, const std::uint8_t (&code)[kPackElements],
                                   int count) {
  const bool four_bits = bits(params.rules.format) == 4;
  std::uint8_t* const to =
      params.codes + row * params.row_bytes + (four_bits ? column / 2 : column);
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kPackElements; ++i) {
    if (four_bits)
      words[0] |= std::uint32_t(code[i] & 15) << (4 * i);
    else
      words[i / 4] |= std::uint32_t(code[i]) << (8 * (i % 4));
  }
  if (params.vector_codes && count == kPackElements) {
    if (four_bits)
      *reinterpret_cast<std::uint32_t*>(to) = words[0];
    else
      *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
    return;
  }
  const int bytes = four_bits ? (count + 1) / 2 : count;
#pragma unroll
  for (int i = 0; i < kPackElements; ++i)
    if (i < bytes) to[i] = std::uint8_t(words[i / 4] >> (8 * (i % 4)));
}

template <DType kType, bool kCached>
__global__ void __launch_bounds__(kernels::kPackWeightThreads, kCached ? 4 : 2)
    pack_groups(const __grid_constant__ kernels::PackWeightParams params) {
  constexpr int kWarps = kernels::kPackWeightThreads / 32;
  __shared__ float book[3 * packing::kTableEntries];
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  if (params.book != nullptr && threadIdx.x < 3 * packing::kTableEntries)
    book[threadIdx.x] = params.book[threadIdx.x];
  __syncthreads();
  const Packer packer(params.rules, CodeBook(book),
                      params.global_scale == nullptr ? 1.0f : *params.global_scale);
  const int lane = threadIdx.x % params.lanes;
  const int groups_of_warp = 32 / params.lanes;
  const std::int64_t groups = params.n * params.groups_in_row;
  const std::int64_t first =
      (std::int64_t(blockIdx.x) * kWarps + threadIdx.x / 32) * groups_of_warp;
  // All lanes of a warp exchange sums: those without a group read the last one and store nothing.
  for (std::int64_t base = first; base < groups;
       base += std::int64_t(gridDim.x) * kWarps * groups_of_warp) {
    const std::int64_t own = base + threadIdx.x % 32 / params.lanes;
    const std::int64_t index = own < groups ? own : groups - 1;
    const GroupReader<kType, kCached> group(params, index, lane);
    GroupRange range;
    group.for_each_chunk([&](std::int64_t, const auto& x, int) {
#pragma unroll
      for (int i = 0; i < kPackElements; ++i) range.add(x[i]);
    });
    for (int step = 1; step < params.lanes; step *= 2)
      range.add({__shfl_xor_sync(~0u, range.amax, step), __shfl_xor_sync(~0u, range.low, step),
                 __shfl_xor_sync(~0u, range.high, step)});
    const GroupScale scale = best_scale(packer, range, [&](const GroupScale& tried) {
      double sum = 0;
      group.for_each_chunk([&](std::int64_t, const auto& x, int count) {
#pragma unroll
        for (int i = 0; i < kPackElements; ++i)
          if (i < count) sum += packer.error(x[i], tried);
      });
      for (int step = 1; step < params.lanes; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      return sum;
    });
    if (own >= groups) continue;
    const std::int64_t row = index / params.groups_in_row;
    group.for_each_chunk([&](std::int64_t at, const auto& x, int count) {
      std::uint8_t code[kPackElements];
#pragma unroll
      for (int i = 0; i < kPackElements; ++i)
        code[i] = i < count ? std::uint8_t(packer.code(x[i], scale).code) : 0;
      if (count > 0) store_codes(params, row, group.column() + at, code, count);
    });
    if (lane != 0) continue;
    switch (scale_bytes(params.rules.scale_type)) {
      case 4:
        static_cast<std::uint32_t*>(params.scales)[index] = scale.bits;
        break;
      case 2:
        static_cast<std::uint16_t*>(params.scales)[index] = std::uint16_t(scale.bits);
        break;
      default:
        static_cast<std::uint8_t*>(params.scales)[index] = std::uint8_t(scale.bits);
    }
    if (params.zero_points != nullptr) params.zero_points[index] = std::uint8_t(scale.zero);
  }
}

}  // namespace tcgemm::passes
