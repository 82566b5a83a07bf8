// Rescales the accumulators of a split-FP32 GEMM (core/split_fp32.h) by the powers of two of their
// row and column, and marks the tiles with results that must be recomputed. Afterwards the
// accumulators are ordinary f32 accumulators.
#pragma once

#include <cfloat>
#include <cstdint>

#include "core/params.h"
#include "core/split_fp32.h"
#include "ptx/convert.cuh"
#include "tile/epilogue.cuh"

namespace tcgemm::sm90 {

// x * 2^exponent, rounded once. If the result is not zero, x * 2^(exponent + 126) is normal; below
// an exponent of -280 every result is zero.
__device__ inline float scale_by_exp2(float x, int exponent) {
  exponent = max(exponent, -280);
  const int last = max(min(exponent, 127), -126), half = (exponent - last) / 2;
  return x * ptx::power_of_two(half) * ptx::power_of_two(exponent - last - half) *
         ptx::power_of_two(last);
}

// The byte of the recompute mask for 16 rows from `row` on.
__device__ inline std::uint8_t* mask_byte(const SplitFp32Params& split, int batch, int row,
                                          int col) {
  const std::int64_t tile =
      (std::int64_t(batch) * split.mask_m + row / kRecomputeTile) * split.mask_n +
      col / kRecomputeTile;
  return split.recompute_mask + tile * kMaskBytes + row / 16 % kMaskBytes;
}

// Covers 16 rows of a warp from `row` on and kColumns columns from `col` on, in matrix `batch`.
// tile/fragment.cuh has the order of the registers.
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
  // The power of two of a row or column, and its share of the least magnitude that a result must
  // have to be accurate. Smaller results are recomputed.
  struct TermScale {
    int exponent;
    float threshold;

    TermScale() = default;
    __device__ TermScale(const SplitFp32Params& split, const Range* ranges, int index, int extent) {
      const Range range = index < extent ? ranges[index] : 0;
      exponent = high(range) - split.top;
      // Elements outside of the result are never recomputed.
      threshold = index >= extent                    ? -FLT_MAX
                  : spread(range) == kNotFinite      ? INFINITY
                  : spread(range) > split.max_spread ? split.error_threshold
                                                     : 0.0f;
    }
  };

  // If no exponent is far from 0, the two exponents add up inside the bits of one float.
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

  // The loop over the columns of a recompute tile stays rolled, and rotates a copy of them: a
  // dynamic index would put the accumulators in local memory.
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
    const SplitFp32Params& split = params_.split;
    bool recompute = false;
#pragma unroll 1
    for (int j = 0; j < kRecomputeTile; j += 8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const TermScale column(split, ranges_b_, col + j + i % 2, params_.extent.n);
        const TermScale& row = rows_[i / 2];
        recompute |= !(fabsf(v[i]) >= row.threshold + column.threshold);
        v[i] = scale_by_exp2(v[i], row.exponent + column.exponent);
      }
      tile::rotate<4>(v);
    }
    if (recompute && row_ < params_.extent.m && col < params_.extent.n)
      *mask_byte(split, batch_, row_, col) = 1;
  }

  const TmaParams& params_;
  const int row_, col_, batch_;
  const Range* ranges_b_;
  TermScale rows_[2];
};

}  // namespace tcgemm::sm90
