// The TF32 terms of b, which three warps of the producer warpgroup make of FP32 operands:
// core/split_fp32.h.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/split_fp32.h"
#include "kernels/sm90/producer.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tf32.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The two TF32 terms of an element. Tensor cores ignore the last 13 bits of the low one.
struct Tf32Terms {
  std::uint32_t high, low;
};

__device__ inline Tf32Terms tf32_terms(std::uint32_t x) {
  const std::uint32_t high = ptx::round_tf32(x);
  return {high, __float_as_uint(__fsub_rn(__uint_as_float(x), __uint_as_float(high)))};
}

// The range of some elements of a row of a, or of a column of b. Zeros have none.
class ElementRange {
 public:
  __device__ void add(std::uint32_t x) {
    least_ = min(least_, (x << 1) - 1);
    most_ = fmaxf(most_, fabsf(__uint_as_float(x)));
  }
  // Is it too wide for two TF32 terms? core/split_fp32.h.
  __device__ bool is_wide() const {
    const int high = static_cast<int>(__float_as_uint(most_) >> 23);
    const int lowest = max(127 + kLeastTf32x2Exponent, high - kTf32x2Spread);
    return least_ < (static_cast<std::uint32_t>(lowest) << 24) - 1;
  }

 private:
  std::uint32_t least_ = ~0u;
  float most_ = 0;
};

// Each of three warps writes the terms of every third stage. A stage gets the high terms in place
// of b and the low terms after them, in the same order:
//
//   stage:  a | b -> high terms of b | low terms of b
template <GemmConfig kConfig>
class TermWriter {
 public:
  static constexpr int kBytes = kConfig.low_term_bytes();  // of a term

  // One thread calls it.
  __device__ static void initialise(const SharedStorage<kConfig>& shared) {
    for (int stage = 0; stage < kConfig.stages; ++stage)
      ptx::mbarrier_init(shared.terms_barrier(stage), 1);
  }

  // `warp` counts the writers.
  __device__ TermWriter(const SharedStorage<kConfig>& shared, int warp)
      : shared_(shared), left_(warp) {}

  // Writes the terms of the k-blocks of the next tile. `columns`: from its first one to the last of
  // the matrix.
  __device__ void write(int k_blocks, int columns) {
    const int end = min(columns, kConfig.n) * kConfig.row_bytes();
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; ++k_block, state_.advance()) {
      if (--left_ >= 0) continue;
      left_ = kWarps - 1;
      shared_.barriers.consumer_wait(state_);
      const std::uint32_t b = shared_.stage(state_.stage) + TmaProducer<kConfig>::kBytesA;
#pragma unroll 1
      for (int at = threadIdx.x % 32 * 16; at < end; at += kAtOnce * kStep) {
        uint4 x[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) x[i] = ptx::load_shared_vector(b + at + i * kStep);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) write_vector(b + at + i * kStep, x[i]);
      }
      ptx::fence_proxy_async();
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_.terms_barrier(state_.stage));
    }
  }

 private:
  // A column gets NaN as a term if four elements have a wide range, so that its results are
  // computed again.
  __device__ static void write_vector(std::uint32_t to, const uint4& x) {
    ElementRange range;
    range.add(x.x), range.add(x.y), range.add(x.z), range.add(x.w);
    const Tf32Terms a = tf32_terms(x.x), b = tf32_terms(x.y), c = tf32_terms(x.z),
                    d = tf32_terms(x.w);
    ptx::store_shared_vector(to, {a.high, b.high, c.high, d.high});
    ptx::store_shared_vector(to + kBytes, {range.is_wide() ? kNaN : a.low, b.low, c.low, d.low});
  }

  static constexpr int kWarps = 3;
  static constexpr int kAtOnce = 4;      // vectors of a thread in registers
  static constexpr int kStep = 32 * 16;  // bytes from one to the next
  static_assert(kBytes % (kAtOnce * kStep) == 0);
  static constexpr std::uint32_t kNaN = 0x7fffffff;

  const SharedStorage<kConfig>& shared_;
  tile::PipelineState<kConfig.stages> state_;
  int left_;  // stages of other warps before the next one of this warp
};

}  // namespace tcgemm::sm90
