// The store of single elements, for kernels of few results. It serves results that need no more
// than scales; tile/store.cuh serves all. Its code is short: with few results, the time to load the
// instructions counts.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "core/params.h"
#include "tile/scale.cuh"

namespace tcgemm::tile {

__device__ inline bool stores_elements(const Epilogue& epilogue) {
  return !epilogue.has_terms && !epilogue.zero_points && addressable_bits(epilogue.out_dtype) > 8;
}

// value * alpha * scale_a * scale_b, in the order of tile::scale.
template <class T>
__device__ inline T scale_element(const Epilogue& epilogue, std::int64_t row, std::int64_t col,
                                  std::int64_t batch, T value) {
  const ScaleVector& scale_a = epilogue.scale_a;
  const ScaleVector& scale_b = epilogue.scale_b;
  T factor = epilogue.alpha;
  if constexpr (std::is_same_v<T, double>) factor = epilogue.alpha_f64;
  if (scale_a.data != nullptr) factor = product(factor, T(scale_value(scale_a, batch, row)));
  if (scale_b.data != nullptr && scale_b.stride == 0)
    factor = product(factor, T(scale_value(scale_b, batch, 0)));
  value = product(value, factor);
  if (scales_columns(epilogue)) value = product(value, T(scale_value(scale_b, batch, col)));
  return value;
}

// Stores the sum of element (row, col) of matrix `batch`, which is inside the result.
template <class T>
__device__ inline void store_element(const Epilogue& epilogue, std::int64_t row, std::int64_t col,
                                     std::int64_t batch, T sum) {
  const std::int64_t at = batch * epilogue.out_stride_batch + row * epilogue.out_stride_row +
                          col * epilogue.out_stride_col;
  if constexpr (std::is_same_v<T, std::int32_t>) {
    if (epilogue.out_dtype == DType::s32) {
      static_cast<std::int32_t*>(epilogue.out)[at] = sum * epilogue.alpha_s32;
      return;
    }
  }
  using Value = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Value value = static_cast<Value>(sum);
  if (epilogue.scaled) value = scale_element(epilogue, row, col, batch, value);
  if constexpr (std::is_same_v<T, double>)
    static_cast<double*>(epilogue.out)[at] = value;
  else if (epilogue.out_dtype == DType::bf16)
    static_cast<__nv_bfloat16*>(epilogue.out)[at] = __float2bfloat16_rn(value);
  else if (epilogue.out_dtype == DType::f16)
    static_cast<__half*>(epilogue.out)[at] = __float2half_rn(value);
  else
    static_cast<float*>(epilogue.out)[at] = value;
}

}  // namespace tcgemm::tile
