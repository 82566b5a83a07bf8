// A row to quantize, and the reductions that find its scale.
//
// Vectors are aligned to the values, so that all but the edges are stored as whole vectors. The
// alignment of x is VectorReader's concern (vector_reader.cuh).
#pragma once

#include <cstdint>

#include "core/integer.h"
#include "core/params.h"
#include "kernels/kernels.h"
#include "kernels/passes/max_abs.cuh"
#include "kernels/passes/values.cuh"
#include "kernels/passes/vector_reader.cuh"

namespace tcgemm::passes {

using kernels::kQuantizeThreads;
inline constexpr int kQuantizeWarps = kQuantizeThreads / 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

using tcgemm::ceil_div;

// A 64-bit division takes about a hundred instructions, and operands rarely need one.
__device__ inline std::int64_t quotient(std::int64_t a, std::int64_t b) {
  return (a | b) >> 32 != 0 ? a / b : std::uint32_t(a) / std::uint32_t(b);
}

// A row of x and its values. With a 64-bit Index it may be a whole tensor.
template <DType kType, class Index = int>
struct QuantizeRow {
  static constexpr int kSize = bytes(kType);
  static constexpr int kElements = kVectorBytes / kSize;

  const char* source;
  std::int64_t stride;  // of the source's elements, in bytes
  char* values;
  Index cols;
  int head;  // elements of vector 0 that lie before the row

  __device__ QuantizeRow(const QuantizeParams& params, std::int64_t index, bool aligned = true)
      : stride(kSize * params.x.stride_col), cols(static_cast<Index>(params.cols)) {
    const std::int64_t batch = quotient(index, params.rows), row = index - batch * params.rows;
    source = static_cast<const char*>(params.x.data) +
             kSize * (batch * params.x.stride_batch + row * params.x.stride_row);
    values = static_cast<char*>(params.values) + index * params.cols;
    head = aligned ? reinterpret_cast<std::uintptr_t>(values) % kElements : 0;
  }

  __device__ Index vectors() const { return (head + cols + kElements - 1) / kElements; }

  // Loads four vectors per thread, from vector `base` on.
  template <int kThreadsPerRow>
  __device__ void load(Index base, int thread, std::uint64_t policy,
                       uint4 (&vectors)[kRowsPerThread]) const {
    constexpr int kSegment = kThreadsPerRow * kVectorBytes, kBytes = kRowsPerThread * kSegment;
    const Index element = base * kElements - head;
    VectorReader<kSize, kSegment> reader;
    reader.source = source + element * stride;
    reader.stride_ld_row = kThreadsPerRow * kElements * stride;
    reader.stride_element = stride;
    reader.ld_rows = kRowsPerThread;
    reader.begin = static_cast<int>(max(-element, Index(-kElements))) * kSize;
    reader.end = static_cast<int>(min(cols - element, Index(2 * kBytes / kSize))) * kSize;
    reader.examine(kRowsPerThread, kBytes);
    reader.read(0, thread, policy, vectors);
  }

  // Quantizes and stores the vectors that `load` has loaded. Segments inside the row need no bounds
  // checks. The loop over the others is rolled and rotates `vectors`: a dynamic index would put the
  // array into local memory.
  template <int kThreadsPerRow, bool kGiven>
  __device__ void store(Index base, int thread, uint4 (&vectors)[kRowsPerThread],
                        const Divisor<kType, kGiven>& divisor, DType type) const {
    constexpr int kSegment = kThreadsPerRow * kElements;
    const Index first = base * kElements - head;
    const Index full = first < 0 ? 0 : (cols - first) / kSegment;
    char* to = values + first + thread * kElements;
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i)
      if (i < full) QuantizedVector<kType>(vectors[i], divisor, type).store(to + i * kSegment);
    if (full >= kRowsPerThread) return;
    Index left = cols - first - thread * kElements;
#pragma unroll 1
    for (int i = 0; i < kRowsPerThread && left > 0; ++i) {
      if (i >= full) {
        const int skipped = i == 0 && thread == 0 && first < 0 ? head : 0;
        const QuantizedVector<kType> quantized(vectors[0], divisor, type);
        if (skipped == 0 && left >= kElements)
          quantized.store(to);
        else
          quantized.store(to, skipped, static_cast<int>(min(left, Index(kElements))));
      }
#pragma unroll
      for (int j = 1; j < kRowsPerThread; ++j) vectors[j - 1] = vectors[j];
      to += kSegment;
      left -= kSegment;
    }
  }
};

// The maximum of numbers without a sign; NaN is the largest.
template <int kLanes>
__device__ inline float lanes_max(float x) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2)
    x = larger(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

// Returns the maximum of the CTA. Callers alternate two buffers, so one __syncthreads() per call is
// enough.
__device__ inline float block_max(float x, float (&shared)[kQuantizeWarps]) {
  x = lanes_max<32>(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kQuantizeWarps; ++i) x = larger(x, shared[i]);
  return x;
}

// Returns the scale of a group: the given scale, or the scale of its amax. The thread that is
// `first` of the group's stores the other one of the two.
template <bool kGiven>
__device__ inline float group_scale(const QuantizeParams& params, std::int64_t group, float amax,
                                    bool first) {
  const float scale = kGiven ? params.scales[group] : scale_of(amax, params.to);
  if (first) {
    if constexpr (kGiven)
      params.amax[group] = __float_as_uint(amax);
    else
      params.scales[group] = scale;
  }
  return scale;
}

}  // namespace tcgemm::passes
