// Adds the partial sums of a product whose k is divided into slices, and applies the epilogue. The
// product's kernel has written the sums of each slice to a workspace.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/params.h"
#include "kernels/kernels.h"
#include "ptx/dependent.cuh"
#include "tile/epilogue.cuh"
#include "tile/fp64_epilogue.cuh"
#include "tile/fragment.cuh"
#include "tile/store.cuh"

namespace tcgemm::passes {

// A warp adds up to kSlicesOfWarp slices of a block of the result, 16 x kSumColumns, in ascending
// order. If there are more slices, more warps share a block: their sums are added in ascending
// order as well. So the bits of a result depend on the number of slices alone.

using kernels::kAddSlicesThreads;
using kernels::kSumColumns;
inline constexpr int kAddSlicesWarps = kAddSlicesThreads / 32;
static_assert(kMostSlices <= kSlicesOfWarp * kAddSlicesWarps);

// The fragment of a block, in the order of tile/fragment.cuh.
template <class T>
using SumFragment = T[kSumColumns / 2];

template <class T>
using Pair = std::conditional_t<std::is_same_v<T, double>, double2,
                                std::conditional_t<std::is_same_v<T, float>, float2, int2>>;

// v: the sum of the slices from `first` to `last` - 1 of the block at (row, col). Several slices
// are loaded at once; f64 has registers for two.
template <class T>
__device__ inline void add_slices_of_warp(const AddSlicesParams& params, int first, int last,
                                          std::int64_t batch, int row, int col, SumFragment<T>& v) {
  constexpr int kPairs = kSumColumns / 4;  // pairs of a lane in a slice, of two rows
  constexpr int kAtOnce = sizeof(T) == 8 ? 2 : kSlicesOfWarp;
  const int lane = threadIdx.x % 32;
  const int lane_row = row + lane / 4, lane_col = col + lane % 4 * 2;
  const std::int64_t slice_elements = std::int64_t(params.extent.m) * params.pitch;
  const T* from = static_cast<const T*>(params.sums) +
                  (batch * params.slices + first) * slice_elements +
                  std::int64_t(lane_row) * params.pitch + lane_col;
#pragma unroll
  for (int at = 0; at < kSlicesOfWarp; at += kAtOnce) {
    if (first + at >= last) break;
    Pair<T> pairs[kAtOnce][kPairs] = {};
#pragma unroll
    for (int slice = 0; slice < kAtOnce; ++slice) {
      if (first + at + slice >= last) break;
#pragma unroll
      for (int i = 0; i < kPairs; ++i)
        if (lane_row + i % 2 * 8 < params.extent.m && lane_col + i / 2 * 8 < params.extent.n)
          pairs[slice][i] = *reinterpret_cast<const Pair<T>*>(from + (at + slice) * slice_elements +
                                                              i % 2 * 8 * params.pitch + i / 2 * 8);
    }
#pragma unroll
    for (int slice = 0; slice < kAtOnce; ++slice) {
      if (first + at + slice >= last) break;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        v[2 * i] = at + slice == 0 ? pairs[slice][i].x : v[2 * i] + pairs[slice][i].x;
        v[2 * i + 1] = at + slice == 0 ? pairs[slice][i].y : v[2 * i + 1] + pairs[slice][i].y;
      }
    }
  }
}

// Applies the epilogue to the block, whose sums are rounded to Value first.
template <class Value, class T>
__device__ inline void store_block(const AddSlicesParams& params, char* staging, int row, int col,
                                   int batch, const SumFragment<T>& v) {
  if constexpr (std::is_same_v<Value, double>) {
    double values[1][kSumColumns / 2];
#pragma unroll
    for (int i = 0; i < kSumColumns / 2; ++i) values[0][i] = v[i];
    tile::store_f64(params.epilogue, params.extent, row, col, batch, values);
  } else {
    tile::store_fragment<kSumColumns, kSumColumns, false, Value>(
        params.epilogue, params.extent, nullptr, staging, row, col, batch,
        [&](int, SumFragment<Value>& values) {
#pragma unroll
          for (int i = 0; i < kSumColumns / 2; ++i) values[i] = static_cast<Value>(v[i]);
        });
  }
}

template <class T, class Value>
__global__ void __launch_bounds__(kAddSlicesThreads)
    add_slices(const __grid_constant__ AddSlicesParams params) {
  __shared__ __align__(1024) char staging[kAddSlicesWarps * kStagingBytes];
  __shared__ T sums[kAddSlicesWarps][kSumColumns / 2][32];
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = warp % params.warps_per_block;
  const int first = part * kSlicesOfWarp, last = min(first + kSlicesOfWarp, params.slices);
  const int blocks_n = (params.extent.n + kSumColumns - 1) / kSumColumns;
  const int blocks_m = (params.extent.m + kBoxRows - 1) / kBoxRows;
  const std::int64_t per_matrix = std::int64_t(blocks_m) * blocks_n;
  const std::int64_t total = per_matrix * params.extent.batch;
  const int blocks_at_once = kAddSlicesWarps / params.warps_per_block;
  for (std::int64_t base = std::int64_t(blockIdx.x) * blocks_at_once; base < total;
       base += std::int64_t(gridDim.x) * blocks_at_once) {
    const std::int64_t index = base + warp / params.warps_per_block;
    const std::int64_t batch = index / per_matrix, in_matrix = index - batch * per_matrix;
    const int row = static_cast<int>(in_matrix / blocks_n) * kBoxRows;
    const int col = static_cast<int>(in_matrix % blocks_n) * kSumColumns;
    const bool inside = index < total;
    SumFragment<T> v;
    if (inside && first < last) add_slices_of_warp<T>(params, first, last, batch, row, col, v);
    if (params.warps_per_block > 1) {
      if (part > 0 && first < last) {
#pragma unroll
        for (int i = 0; i < kSumColumns / 2; ++i) sums[warp][i][lane] = v[i];
      }
      __syncthreads();
      if (part == 0) {
        for (int other = 1; other * kSlicesOfWarp < params.slices; ++other) {
#pragma unroll
          for (int i = 0; i < kSumColumns / 2; ++i) v[i] += sums[warp + other][i][lane];
        }
      }
    }
    if (inside && part == 0)
      store_block<Value, T>(params, staging + warp * kStagingBytes, row, col,
                            static_cast<int>(batch), v);
    if (params.warps_per_block > 1) __syncthreads();  // the next blocks overwrite `sums`
  }
}

}  // namespace tcgemm::passes
