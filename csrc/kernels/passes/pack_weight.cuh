// Packs a weight (core/pack_weight.h). A power of two of lanes shares a group.
#pragma once

#include <cstdint>

#include "kernels/pack_weight.h"
#include "kernels/passes/values.cuh"
#include "kernels/passes/vector_reader.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

using Chunk = float[kPackElements];

// A lane reads chunks of kPackElements elements: number `lane` of its group, and those `lanes`
// further. With kCached a lane has at most kPackChunks of them, which stay in registers; longer
// groups are read again for each sum.
template <DType kType, bool kCached>
class GroupReader {
 public:
  __device__ GroupReader(const kernels::PackWeightParams& params, std::int64_t index, int lane)
      : params_(params), lane_(lane) {
    row_ = index / params.groups_in_row;
    column_ = (index - row_ * params.groups_in_row) * params.group;
    start_ = static_cast<const char*>(params.w.data) +
             (row_ * params.w.stride_row + column_ * params.w.stride_col) * kSize;
    if constexpr (kCached) load_all();
  }

  // Calls visit(first element of the chunk in the group, elements, how many there are).
  template <class Visit>
  __device__ __forceinline__ void for_each_chunk(const Visit& visit) const {
    if constexpr (kCached) {
#pragma unroll
      for (int i = 0; i < kPackChunks; ++i) {
        const int chunk = lane_ + i * params_.lanes;
        visit(chunk * kPackElements, cached_[i], count(chunk));
      }
    } else {
#pragma unroll 1
      for (std::int64_t chunk = lane_; chunk * kPackElements < params_.group;
           chunk += params_.lanes) {
        Chunk x;
        load(chunk, x);
        visit(chunk * kPackElements, x, count(chunk));
      }
    }
  }

  __device__ std::int64_t row() const { return row_; }
  __device__ std::int64_t column() const { return column_; }

 private:
  static constexpr int kSize = bytes(kType), kVectors = kPackElements * kSize / kVectorBytes;
  struct Vectors {
    uint4 of[kVectors];
  };

  __device__ int count(std::int64_t chunk) const {
    const std::int64_t left = params_.group - chunk * kPackElements;
    return left < 0 ? 0 : left < kPackElements ? int(left) : kPackElements;
  }

  // Does a lane load chunks as vectors?
  __device__ bool in_vectors() const {
    return params_.w.row_vectors && params_.group % kPackElements == 0;
  }
  __device__ const char* address(std::int64_t chunk) const {
    return start_ + chunk * kPackElements * params_.w.stride_col * kSize;
  }

  __device__ Vectors vectors(std::int64_t chunk) const {
    return *reinterpret_cast<const Vectors*>(address(chunk));
  }
  __device__ static void unpack_all(const Vectors& vectors, Chunk& x) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      unpack<kType>(vectors.of[i],
                    reinterpret_cast<float (&)[kPackElements / kVectors]>(x[i * 8 / kVectors]));
  }

  // Elements outside of the group are 0, which changes no sum and no range.
  __device__ void gather(std::int64_t chunk, Chunk& x) const {
    const int count = this->count(chunk);
#pragma unroll
    for (int i = 0; i < kPackElements; ++i)
      x[i] = i < count ? element(address(chunk) + i * params_.w.stride_col * kSize) : 0.0f;
  }

  __device__ void load(std::int64_t chunk, Chunk& x) const {
    if (in_vectors())
      unpack_all(vectors(chunk), x);
    else
      gather(chunk, x);
  }

  // All loads are issued before the first one is used.
  __device__ void load_all() {
    if (in_vectors()) {
      Vectors raw[kPackChunks] = {};
#pragma unroll
      for (int i = 0; i < kPackChunks; ++i)
        if (const int chunk = lane_ + i * params_.lanes; count(chunk) != 0) raw[i] = vectors(chunk);
#pragma unroll
      for (int i = 0; i < kPackChunks; ++i) unpack_all(raw[i], cached_[i]);
      return;
    }
#pragma unroll
    for (int i = 0; i < kPackChunks; ++i) gather(lane_ + i * params_.lanes, cached_[i]);
  }

  __device__ static float element(const char* from) {
    if constexpr (kType == DType::f32)
      return *reinterpret_cast<const float*>(from);
    else
      return ptx::unpack<kType>(*reinterpret_cast<const std::uint16_t*>(from)).x;
  }

  const kernels::PackWeightParams& params_;
  const char* start_;
  std::int64_t row_, column_;
  int lane_;
  Chunk cached_[kCached ? kPackChunks : 1];
};

// Divides the elements of a group by its scale, rounded as the IEEE division. Below kTiny a
// remainder may be subnormal. That of an element which is small beside its scale matters for the
// codes of a table alone: all others have code 0 there.
template <DType kType, WeightFormat kFormat>
class GroupDivision {
 public:
  __device__ GroupDivision(float divisor, const GroupRange& range)
      : divisor_(divisor),
        inverse_(inverse(divisor)),
        fast_(range.amax < packing::kInfinity && divisor >= kLeast && divisor <= kMost) {}

  __device__ void divide(const Chunk& x, Chunk& quotients) const {
    bool fast = fast_;
    if constexpr (kFormat == WeightFormat::table4) {
#pragma unroll
      for (int i = 0; i < kPackElements; ++i) fast = fast && (fabsf(x[i]) >= kTiny || x[i] == 0.0f);
    }
    if (fast) {
#pragma unroll
      for (int i = 0; i < kPackElements; ++i)
        quotients[i] = quotient<kType>(x[i], divisor_, inverse_);
      return;
    }
#pragma unroll
    for (int i = 0; i < kPackElements; ++i) quotients[i] = x[i];
    divide_each(quotients, divisor_);
  }

 private:
  static constexpr float kTiny = 0x1p-78f, kLeast = 0x1p-60f, kMost = 0x1p60f;

  float divisor_, inverse_;
  bool fast_;
};

template <bool kFourBits>
__device__ inline void store_codes(const kernels::PackWeightParams& params, std::int64_t row,
                                   std::int64_t column, const std::uint32_t (&code)[kPackElements],
                                   int count) {
  std::uint8_t* const to =
      params.codes + row * params.row_bytes + (kFourBits ? column / 2 : column);
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kPackElements; ++i) {
    if constexpr (kFourBits)
      words[0] |= (code[i] & 15) << (4 * i);
    else
      words[i / 4] |= (code[i] & 255) << (8 * (i % 4));
  }
  if (params.vector_codes && count == kPackElements) {
    if constexpr (kFourBits)
      *reinterpret_cast<std::uint32_t*>(to) = words[0];
    else
      *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
    return;
  }
  const int bytes = kFourBits ? (count + 1) / 2 : count;
  if (kFourBits && count % 2 != 0) words[0] &= (1u << (4 * count)) - 1;  // the other half of a byte
#pragma unroll
  for (int i = 0; i < kPackElements; ++i)
    if (i < bytes) to[i] = std::uint8_t(words[i / 4] >> (8 * (i % 4)));
}

template <bool kPoints, class Group>
__device__ inline GroupRange range_of(const Group& group, int lanes) {
  GroupRange range;
  group.for_each_chunk([&](std::int64_t, const Chunk& x, int) {
#pragma unroll
    for (int i = 0; i < kPackElements; ++i) range.add<kPoints>(x[i]);
  });
  for (int step = 1; step < lanes; step *= 2) {
    GroupRange other;
    other.amax = __shfl_xor_sync(~0u, range.amax, step);
    if constexpr (kPoints) {
      other.low = __shfl_xor_sync(~0u, range.low, step);
      other.high = __shfl_xor_sync(~0u, range.high, step);
    }
    range.add(other);
  }
  return range;
}

__device__ inline void store_scale(const kernels::PackWeightParams& params, std::int64_t index,
                                   const GroupScale& scale) {
  switch (scale_bytes(params.rules.scale_type)) {
    case 4: static_cast<std::uint32_t*>(params.scales)[index] = scale.bits; break;
    case 2: static_cast<std::uint16_t*>(params.scales)[index] = std::uint16_t(scale.bits); break;
    default: static_cast<std::uint8_t*>(params.scales)[index] = std::uint8_t(scale.bits);
  }
  if (params.zero_points != nullptr) params.zero_points[index] = std::uint8_t(scale.zero);
}

// Packs the group `index`. All lanes of a warp call it, because they exchange sums; a lane that is
// not `own` stores nothing.
template <DType kType, bool kCached, bool kLeastError, WeightFormat kFormat, bool kPoints>
__device__ inline void pack_group(const kernels::PackWeightParams& params, const Packer& packer,
                                  std::int64_t index, int lane, bool own) {
  using Division = GroupDivision<kType, kFormat>;
  const GroupReader<kType, kCached> group(params, index, lane);
  const GroupRange range = range_of<kPoints>(group, params.lanes);
  GroupScale scale;
  if constexpr (!kLeastError)
    scale = packer.scale(range, 1.0f);
  else
    scale = best_scale(packer, range, [&](const GroupScale& tried) {
      const Division division(tried.divisor, range);
      double sum = 0;
      group.for_each_chunk([&](std::int64_t, const Chunk& x, int count) {
        Chunk quotients;
        division.divide(x, quotients);
#pragma unroll
        for (int i = 0; i < kPackElements; ++i)
          if (i < count) sum += packer.error<kFormat, kPoints>(x[i], quotients[i], tried);
      });
      for (int step = 1; step < params.lanes; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      return sum;
    });
  if (!own) return;
  const Division division(scale.divisor, range);
  group.for_each_chunk([&](std::int64_t at, const Chunk& x, int count) {
    if (count == 0) return;
    Chunk quotients;
    division.divide(x, quotients);
    std::uint32_t code[kPackElements];
#pragma unroll
    for (int i = 0; i < kPackElements; ++i)
      code[i] = packer.code<kFormat, kPoints>(quotients[i], scale).code;
    if (bits(params.rules.format) == 4)
      store_codes<true>(params, group.row(), group.column() + at, code, count);
    else
      store_codes<false>(params, group.row(), group.column() + at, code, count);
  });
  if (lane == 0) store_scale(params, index, scale);
}

template <DType kType, bool kCached, bool kLeastError>
__global__ void __launch_bounds__(kernels::kPackWeightThreads, kLeastError ? 2 : 3)
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
  const int lane = threadIdx.x & (params.lanes - 1), log_lanes = __ffs(params.lanes) - 1;
  const int groups_of_warp = 32 >> log_lanes;
  const std::int64_t groups = params.n * params.groups_in_row;
  const std::int64_t first =
      (std::int64_t(blockIdx.x) * kWarps + threadIdx.x / 32) * groups_of_warp;
  for_codes(params.rules, [&]<WeightFormat kFormat, bool kPoints>() {
    // Lanes without a group read the last one.
    for (std::int64_t base = first; base < groups;
         base += std::int64_t(gridDim.x) * kWarps * groups_of_warp) {
      const std::int64_t own = base + (threadIdx.x % 32 >> log_lanes);
      pack_group<kType, kCached, kLeastError, kFormat, kPoints>(
          params, packer, own < groups ? own : groups - 1, lane, own < groups);
    }
  });
}

}  // namespace tcgemm::passes
