// The backward of an activation and of a bias, in one read of its operands
// (core/activation_backward.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/integer.h"
#include "core/params.h"
#include "kernels/kernels.h"
#include "kernels/passes/row.cuh"
#include "kernels/passes/values.cuh"
#include "kernels/passes/vector_reader.cuh"
#include "ptx/convert.cuh"
#include "ptx/dependent.cuh"
#include "ptx/load.cuh"
#include "tile/activation.cuh"

namespace tcgemm::passes {

// The work of a CTA is one unit, a block of columns of the rows of one split:
//
//              lane 0     lane 1           a vector of 16 bytes a lane
//            |----------|----------| ...
//   group 0    row 0                       each group of lanes reads every groups-th row, and adds
//   group 1    row 1                       it to sums in registers
//   ...
//
// Shared memory adds the sums of the groups. With several splits, add_partial_sums adds theirs. The
// order of every sum is fixed, so the bits do not depend on the order in which CTAs run.

using kernels::kActivationBackwardThreads;
inline constexpr int kBlocksPerMultiprocessor = 4;
inline constexpr int kReducedColumns = 32;  // of a CTA of add_partial_sums

// Rows that a thread reads at once.
constexpr int rows_at_once(bool activates) { return activates ? 2 : 8; }

constexpr std::int64_t column_blocks(const ActivationBackwardParams& params) {
  return ceil_div(params.cols * addressable_bytes(params.g.dtype), std::int64_t(kVectorBytes)
                                                                       << params.log_lanes);
}

__device__ inline void store_rounded(void* to, DType type, std::int64_t index, float value) {
  if (type == DType::f32)
    static_cast<float*>(to)[index] = value;
  else
    static_cast<std::uint16_t*>(to)[index] =
        static_cast<std::uint16_t>(type == DType::f16 ? ptx::pack<DType::f16>(value, 0.0f)
                                                      : ptx::pack<DType::bf16>(value, 0.0f));
}

// Stores kCount adjacent values as one or two vectors.
template <int kCount>
__device__ inline void store_vector(void* to, DType type, std::int64_t index,
                                    const float (&v)[kCount]) {
  if (type == DType::f32) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      *reinterpret_cast<float4*>(static_cast<float*>(to) + index + i) = {v[i], v[i + 1], v[i + 2],
                                                                         v[i + 3]};
    return;
  }
  std::uint32_t words[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    words[i] = type == DType::f16 ? ptx::pack<DType::f16>(v[2 * i], v[2 * i + 1])
                                  : ptx::pack<DType::bf16>(v[2 * i], v[2 * i + 1]);
  auto* address = static_cast<std::uint16_t*>(to) + index;
  if constexpr (kCount == 8)
    *reinterpret_cast<uint4*>(address) = {words[0], words[1], words[2], words[3]};
  else
    *reinterpret_cast<uint2*>(address) = {words[0], words[1]};
}

// One column vector of one split: what a thread reads, computes and adds.
template <DType kType, Activation kActivation>
struct ColumnVector {
  static constexpr int kElements = kVectorBytes / bytes(kType);
  static constexpr bool kActivates = kActivation != Activation::none;
  using Math = std::conditional_t<kType == DType::f32, Exact<float>, tile::Fast16bit>;
  static constexpr int kRows = rows_at_once(kActivates);

  const ActivationBackwardParams& params;
  std::int64_t column;
  int count;     // columns that exist
  bool vectors;  // all of them, and every row of every operand starts at a multiple of 16 bytes
  float sums[kElements] = {};

  __device__ ColumnVector(const ActivationBackwardParams& params, std::int64_t column)
      : params(params),
        column(column),
        count(static_cast<int>(
            max(std::int64_t(0), min(params.cols - column, std::int64_t(kElements))))),
        vectors(count == kElements && params.g.row_vectors &&
                (!kActivates || (params.z.row_vectors && params.gz_vectors))) {}

  // Adds every step-th of `left` rows from `row` on. Rows that a thread reads at once have one
  // pitch, so they belong to one matrix.
  __device__ void add_rows(std::int64_t row, int left, int step) {
    if (count == 0) return;
    std::int64_t index = row * params.cols + column;  // in gz
    if (vectors && params.rows_per_matrix == params.rows) {
      const char* g_address = address(params.g, row);
      const char* z_address = kActivates ? address(params.z, row) : nullptr;
      const std::int64_t g_step = params.g.stride_row * bytes(kType) * step;
      const std::int64_t z_step = params.z.stride_row * bytes(kType) * step;
#pragma unroll 1
      for (; left > (kRows - 1) * step; left -= kRows * step, row += kRows * step) {
        uint4 g[kRows], z[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i, g_address += g_step) g[i] = load(g_address);
        if constexpr (kActivates) {
#pragma unroll
          for (int i = 0; i < kRows; ++i, z_address += z_step) z[i] = load(z_address);
        }
#pragma unroll
        for (int i = 0; i < kRows; ++i, index += step * params.cols) finish(g[i], z[i], index);
      }
    }
#pragma unroll 1
    for (; left > 0; left -= step, row += step, index += step * params.cols) {
      const uint4 g = load(params.g, row);
      finish(g, kActivates ? load(params.z, row) : uint4{}, index);
    }
  }

 private:
  __device__ const char* address(const TensorRef& matrix, std::int64_t row) const {
    std::int64_t offset = column;
    if (params.rows_per_matrix != params.rows) {
      const std::int64_t batch = quotient(row, params.rows_per_matrix);
      offset += batch * matrix.stride_batch;
      row -= batch * params.rows_per_matrix;
    }
    return static_cast<const char*>(matrix.data) +
           (offset + row * matrix.stride_row) * bytes(kType);
  }

  // The products of the backward read g again if it is not multiplied here.
  __device__ static uint4 load(const char* address) {
    return ptx::load(address, kActivates ? ptx::evict_first() : ptx::evict_normal());
  }

  __device__ uint4 load(const TensorRef& matrix, std::int64_t row) const {
    const char* from = address(matrix, row);
    return vectors ? load(from) : gather_elements<bytes(kType)>(from, bytes(kType), 0, count);
  }

  __device__ void finish(const uint4& g_vector, const uint4& z_vector, std::int64_t index) {
    float g[kElements];
    unpack<kType>(g_vector, g);
    if constexpr (kActivates) {
      float z[kElements];
      unpack<kType>(z_vector, z);
#pragma unroll
      for (int i = 0; i < kElements; ++i) g[i] = Formula<kActivation, Math>::backward(g[i], z[i]);
      store(g, index);
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) sums[i] += g[i];
  }

  __device__ void store(const float (&g)[kElements], std::int64_t index) const {
    if (vectors) return store_vector(params.gz, params.gz_dtype, index, g);
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (i < count) store_rounded(params.gz, params.gz_dtype, index + i, g[i]);
  }
};

template <DType kType, Activation kActivation>
__global__ void __launch_bounds__(kActivationBackwardThreads, kBlocksPerMultiprocessor)
    activation_backward(const __grid_constant__ ActivationBackwardParams params) {
  constexpr int kElements = kVectorBytes / bytes(kType);
  __shared__ float shared[kActivationBackwardThreads * kElements];
  const int lanes = 1 << params.log_lanes, groups = kActivationBackwardThreads >> params.log_lanes;
  const int lane = threadIdx.x & (lanes - 1), group = threadIdx.x >> params.log_lanes;
  const std::int64_t blocks = column_blocks(params);
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t unit = blockIdx.x; unit < blocks * params.splits; unit += gridDim.x) {
    const std::int64_t split = quotient(unit, blocks);
    const std::int64_t first_column = (unit - split * blocks) * lanes * kElements;
    ColumnVector<kType, kActivation> vector(params, first_column + lane * kElements);
    const std::int64_t first = split * params.rows_per_split + group;
    const std::int64_t end = min((split + 1) * params.rows_per_split, params.rows);
    vector.add_rows(first, static_cast<int>(end - first), groups);
    if (params.sums == nullptr) continue;
#pragma unroll
    for (int i = 0; i < kElements; i += 4)
      *reinterpret_cast<float4*>(shared + threadIdx.x * kElements + i) = {
          vector.sums[i], vector.sums[i + 1], vector.sums[i + 2], vector.sums[i + 3]};
    __syncthreads();
    const int columns = lanes * kElements;
    for (int i = threadIdx.x; i < columns; i += kActivationBackwardThreads) {
      const std::int64_t column = first_column + i;
      if (column >= params.cols) break;
      float sum = 0.0f;
#pragma unroll 8
      for (int j = 0; j < groups; ++j) sum += shared[j * columns + i];
      if (params.partial_sums != nullptr)
        params.partial_sums[split * params.cols + column] = sum;
      else
        store_rounded(params.sums, params.sum_dtype, column, sum);
    }
    __syncthreads();  // the next unit overwrites `shared`
  }
}

// A CTA adds the partial sums of 32 columns. A warp reads every eighth split.
__global__ void __launch_bounds__(kActivationBackwardThreads)
    add_partial_sums(const __grid_constant__ ActivationBackwardParams params) {
  constexpr int kWarps = kActivationBackwardThreads / kReducedColumns;
  __shared__ float shared[kWarps][kReducedColumns];
  const int lane = threadIdx.x % kReducedColumns, warp = threadIdx.x / kReducedColumns;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t first = std::int64_t(blockIdx.x) * kReducedColumns; first < params.cols;
       first += std::int64_t(gridDim.x) * kReducedColumns) {
    const std::int64_t column = first + lane;
    float sum = 0.0f;
    if (column < params.cols) {
#pragma unroll 8
      for (int split = warp; split < params.splits; split += kWarps)
        sum += ptx::load(params.partial_sums + split * params.cols + column);
    }
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < params.cols) {
      sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) sum += shared[i][lane];
      store_rounded(params.sums, params.sum_dtype, column, sum);
    }
    __syncthreads();  // the next columns overwrite `shared`
  }
}

}  // namespace tcgemm::passes
