// Sums of products of 16-bit parts (core/split_fp32.h), in the registers of a warpgroup: scaled back by
// powers of two, and looked at for doubts. From here on they are results like any others.
#pragma once

#include <cfloat>
#include <cstdint>

#include "core/params.h"
#include "core/split_fp32.h"
#include "ptx/convert.cuh"
#include "tile/epilogue.cuh"

namespace tcgemm::sm90 {

// x * 2^exponent, rounded once: where the result is not zero, x * 2^(exponent + 126) is normal; and
// below -280 all are zero.
__device__ inline float scale_by_exp2(float x, int exponent) {
  exponent = max(exponent, -280);
  const int last = max(min(exponent, 127), -126), half = (exponent - last) / 2;
  return x * ptx::power_of_two(half) * ptx::power_of_two(exponent - last - half) *
         ptx::power_of_two(last);
}

// A warp's rows from `row` and kColumns columns from `col` on of matrix `batch`; registers as in
// tile/fragment.cuh.
template <int kColumns>
class Rescale {
 public:
  using Accumulators = float[kColumns / 2];

  __device__ Rescale(const TmaParams& params, int row, int col, int batch)
      : params_(params), row_(row), col_(col + threadIdx.x % 4 * 2), batch_(batch) {
    const Extent& extent = params.extent;
    const Range* ranges =
        params.split.ranges_a + (params.a_batched ? batch : 0) * std::int64_t(extent.m);
    ranges_b_ = params.split.ranges_b + (params.b_batched ? batch : 0) * std::int64_t(extent.n);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      rows_[i] = TermScale(params.split, ranges, row + threadIdx.x % 32 / 4 + 8 * i, extent.m);
  }

  __device__ void run(Accumulators& accumulators) const {
    if (*params_.split.decision & kNeedsChecks)
      rescale_checked(accumulators);
    else
      rescale_unchecked(accumulators);
  }

 private:
  // A row or column: its exponent, and the least magnitude of a result that is beyond doubt.
  struct TermScale {
    int exponent;
    float threshold;

    TermScale() = default;
    __device__ TermScale(const SplitFp32Params& terms, const Range* ranges, int index, int extent) {
      const Range range = index < extent ? ranges[index] : 0;
      exponent = high(range) - terms.top;
      // Nothing outside the result is in doubt.
      threshold = index >= extent                    ? -FLT_MAX
                  : spread(range) == kNotFinite      ? INFINITY
                  : spread(range) > terms.max_spread ? terms.error_threshold
                                                     : 0.0f;
    }
  };

  // Where no exponent is far from 0 they add up in their place in a number.
  __device__ void rescale_unchecked(Accumulators& accumulators) const {
    const int bits[2] = {(rows_[0].exponent - params_.split.top + 127) << 23,
                         (rows_[1].exponent - params_.split.top + 127) << 23};
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = col_ + 8 * j + i;
        const Range range = column < params_.extent.n ? ranges_b_[column] : 0;
        const int add = int(range & 0xffff0000u) << 7;
        accumulators[4 * j + i] *= __int_as_float(bits[0] + add);
        accumulators[4 * j + 2 + i] *= __int_as_float(bits[1] + add);
      }
    }
  }

  // Rolled up, a flag's columns at a time: registers have no index.
  __device__ void rescale_checked(Accumulators& accumulators) const {
    constexpr int kCount = kRecomputeTile / 2;
#pragma unroll
    for (int group = 0; group < kColumns / kRecomputeTile; ++group) {
      float v[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) v[i] = accumulators[group * kCount + i];
      rescale_checked(v, col_ + group * kRecomputeTile);
#pragma unroll
      for (int i = 0; i < kCount; ++i) accumulators[group * kCount + i] = v[i];
    }
  }

  __device__ void rescale_checked(float (&v)[kRecomputeTile / 2], int col) const {
    const SplitFp32Params& terms = params_.split;
    bool recompute = false;
#pragma unroll 1
    for (int j = 0; j < kRecomputeTile; j += 8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const TermScale column(terms, ranges_b_, col + j + i % 2, params_.extent.n);
        const TermScale& row = rows_[i / 2];
        recompute |= !(fabsf(v[i]) >= row.threshold + column.threshold);
        v[i] = scale_by_exp2(v[i], row.exponent + column.exponent);
      }
      tile::rotate<4>(v);
    }
    if (recompute && row_ < params_.extent.m && col < params_.extent.n)
      terms.recompute_mask[(std::int64_t(batch_) * terms.mask_m + row_ / kRecomputeTile) *
                               terms.mask_n +
                           col / kRecomputeTile] = 1;
  }

  const TmaParams& params_;
  const int row_, col_, batch_;
  const Range* ranges_b_;
  TermScale rows_[2];
};

}  // namespace tcgemm::sm90
