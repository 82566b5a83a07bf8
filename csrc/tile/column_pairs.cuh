// Values of the columns of a unit in the unrolled epilogue (tile/unrolled.cuh): a bias, or scales.
#pragma once

#include "tile/epilogue.cuh"

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

}  // namespace tcgemm::tile
