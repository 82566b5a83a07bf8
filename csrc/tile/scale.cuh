// Epilogue steps for quantised operands and results: zero points, scales and amax. Registers are
// laid out as in tile/epilogue.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/params.h"
#include "tile/epilogue.cuh"

namespace tcgemm::tile {

__device__ inline float scale_value(const ScaleVector& scale, std::int64_t batch,
                                    std::int64_t index) {
  return scale.data[batch * scale.stride_batch + (index >> scale.shift) * scale.stride];
}

// Prefetches the scales of a warp's rows and of the tile's columns before the mainloop runs.
__device__ inline void prefetch_scales(const Epilogue& epilogue, const Window& window,
                                       int columns) {
  const int lane = threadIdx.x % 32, col = lane * 32;  // a cache line of 128 bytes a lane
  const ScaleVector& scale_a = epilogue.scale_a;
  const ScaleVector& scale_b = epilogue.scale_b;
  if (scale_a.data != nullptr && lane == 0 && window.rows > 0)
    ptx::prefetch_l1(scale_a.data + window.batch * scale_a.stride_batch +
                     (window.row >> scale_a.shift) * scale_a.stride);
  if (scale_b.data != nullptr && scale_b.stride == 1 && col < min(columns, window.cols))
    ptx::prefetch_l1(scale_b.data + window.batch * scale_b.stride_batch +
                     ((window.col + col) >> scale_b.shift));
}

// Does scale_b have a value for each column?
__device__ inline bool scales_columns(const Epilogue& epilogue) {
  return epilogue.scale_b.data != nullptr && epilogue.scale_b.stride != 0;
}

// The scales of a lane's two rows, and scale_b where one value serves all columns. Rows outside the
// matrix use the scale of the last one, so no load is out of bounds.
struct RowScales {
  float a[2] = {1.0f, 1.0f};
  float b = 1.0f;
};

__device__ inline RowScales load_row_scales(const Epilogue& epilogue, const Window& window) {
  RowScales scales;
  if (epilogue.scale_a.data != nullptr) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      scales.a[half] = scale_value(epilogue.scale_a, window.batch,
                                   window.row + min(window.lane_rows[half], window.rows - 1));
  }
  if (epilogue.scale_b.data != nullptr && epilogue.scale_b.stride == 0)
    scales.b = scale_value(epilogue.scale_b, window.batch, 0);
  return scales;
}

// v *= alpha * scale_a * (scale_b, where it has one value).
template <class T, int kCount>
__device__ inline void multiply_rows(const Epilogue& epilogue, const RowScales& scales,
                                     T (&v)[kCount]) {
  T alpha = epilogue.alpha;
  if constexpr (std::is_same_v<T, double>) alpha = epilogue.alpha_f64;
  const T rows[2] = {alpha * scales.a[0] * scales.b, alpha * scales.a[1] * scales.b};
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] = product(v[i], rows[i / 2 % 2]);
}

// v *= alpha * scale_a * scale_b. Columns outside the matrix use the scale of the last one.
template <class T, int kCount>
__device__ inline void scale(const Epilogue& epilogue, const Window& window, T (&v)[kCount]) {
  multiply_rows(epilogue, load_row_scales(epilogue, window), v);
  if (!scales_columns(epilogue)) return;
  const int col = threadIdx.x % 4 * 2;
#pragma unroll 1
  for (int j = 0; j < kCount / 4; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t index = window.col + min(8 * j + col + i, window.cols - 1);
      const float factor = scale_value(epilogue.scale_b, window.batch, index);
      v[i] = product(v[i], T(factor));
      v[i + 2] = product(v[i + 2], T(factor));
    }
    rotate<4>(v);
  }
}

// Element `index` of an s32 vector from `offset` on. Indices past the end, `limit`, read the last
// element.
__device__ inline std::int32_t load_s32(const TensorRef& source, std::int64_t offset, int index,
                                        int limit, std::int64_t stride) {
  return static_cast<const std::int32_t*>(source.data)[offset + min(index, limit - 1) * stride];
}

// acc - zero_a[m] * sum_b[n] - zero_b[n] * sum_a[m] + k * zero_a[m] * zero_b[n], modulo 2^32.
template <int kCount>
__device__ inline void subtract_zero_points(const ZeroPoints& zeros, const Window& window,
                                            std::int32_t (&v)[kCount]) {
  const bool with_a = zeros.zero_a.data != nullptr, with_b = zeros.zero_b.data != nullptr;
  std::int32_t zero_a[2] = {}, sum_a[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto row = [&](const TensorRef& source) {
      return load_s32(source, window.batch * source.stride_batch + window.row * source.stride_row,
                      window.lane_rows[half], window.rows, source.stride_row);
    };
    if (with_a) zero_a[half] = row(zeros.zero_a);
    if (with_b) sum_a[half] = row(zeros.sum_a);
  }
  int col = threadIdx.x % 4 * 2;
#pragma unroll 1
  for (int j = 0; j < kCount / 4; ++j, col += 8) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto column = [&](const TensorRef& source) {
        return load_s32(source, window.batch * source.stride_batch + window.col * source.stride_col,
                        col + i, window.cols, source.stride_col);
      };
      const std::int32_t zero_b = with_b ? column(zeros.zero_b) : 0;
      const std::int32_t sum_b = with_a ? column(zeros.sum_b) : 0;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        v[2 * half + i] -= zero_a[half] * (sum_b - zeros.k * zero_b) + zero_b * sum_a[half];
    }
    rotate<4>(v);
  }
}

// The bits of the largest |value| of a lane inside the matrix. Magnitudes are compared as integers,
// so NaN is the largest.
template <class T, int kCount>
__device__ inline std::uint32_t largest_magnitude(const Window& window, const T (&v)[kCount]) {
  const int col = threadIdx.x % 4 * 2;
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const bool inside = window.holds(i / 2 % 2) && i / 4 * 8 + col + i % 2 < window.cols;
    largest = max(largest, inside ? __float_as_uint(float(v[i])) & 0x7fffffffu : 0u);
  }
  return largest;
}

// Reduces the largest magnitude of a warp into *amax.
__device__ inline void reduce_amax(float* amax, std::uint32_t largest) {
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned*>(amax), largest);
}

// Two elements of an 8-bit result, low element first.
template <DType kOut>
__device__ inline std::uint16_t pack_8bit_pair(float low, float high) {
  if constexpr (is_fp8(kOut)) {
    return ptx::pack_fp8<kOut>(low, high);
  } else {
    static_assert(kOut == DType::s8);
    return std::uint16_t(ptx::pack_s8(low, high, 0.0f, 0.0f));
  }
}

// The last step of the epilogue: amax of the values, then scale_out.
template <class T, int kCount>
__device__ inline void requantise(const Epilogue& epilogue, const Window& window, T (&v)[kCount]) {
  if (epilogue.amax != nullptr) reduce_amax(epilogue.amax, largest_magnitude(window, v));
  if (epilogue.scale_out == nullptr) return;
  const float factor = *epilogue.scale_out;
#pragma unroll
  for (T& x : v) x *= factor;
}

}  // namespace tcgemm::tile
