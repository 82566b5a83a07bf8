// Values of the columns of a unit in the epilogues of tile/unrolled.cuh and tile/transposed.cuh: a
// bias, or scales.
#pragma once

#include "tile/epilogue.cuh"
#include "tile/scale.cuh"

namespace tcgemm::tile {

// The lane's columns of a unit of 16 rows x kUnit columns, in the layout of tile/epilogue.cuh.
template <int kUnit>
struct ColumnPairs {
  float2 pairs[kUnit / 8];

  // first: the value of the first column. kCount: the values of the unit that the lane has.
  template <int kCount>
  __device__ __forceinline__ void load(const float* first, int columns = kUnit) {
    first += threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j)
      if (8 * j < columns) pairs[j] = *reinterpret_cast<const float2*>(first + 8 * j);
  }

  template <int kCount>
  __device__ __forceinline__ void multiply(float (&v)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = product(v[i], of_value(i));
  }

  template <int kCount>
  __device__ __forceinline__ void add_to(float (&v)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] += of_value(i);
  }

 private:
  __device__ __forceinline__ float of_value(int i) const {
    return i % 2 == 0 ? pairs[i / 4].x : pairs[i / 4].y;
  }
};

// The scales of a unit's columns, of which the lane has kCount values. shared: these scales, where
// Epilogue::shares_scales.
template <int kUnit, int kCount>
__device__ __forceinline__ ColumnPairs<kUnit> column_scales(const Epilogue& epilogue,
                                                            const Window& window,
                                                            const float* shared) {
  const ScaleVector& scale_b = epilogue.scale_b;
  const float* first = epilogue.shares_scales
                           ? shared
                           : scale_b.data + window.batch * scale_b.stride_batch + window.col;
  ColumnPairs<kUnit> scales = {};
  scales.template load<kCount>(first, window.cols);
  return scales;
}

// v *= alpha * scale_a * scale_b for a unit of 16 rows x kUnit columns.
template <int kUnit, int kCount>
__device__ __forceinline__ void multiply_scales(const Epilogue& epilogue, const RowScales& rows,
                                                const Window& window, const float* shared,
                                                float (&v)[kCount]) {
  multiply_rows(epilogue, rows, v);
  if (scales_columns(epilogue)) column_scales<kUnit, kCount>(epilogue, window, shared).multiply(v);
}

}  // namespace tcgemm::tile
