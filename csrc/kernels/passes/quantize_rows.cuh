// Quantization with one scale per row, or one per tensor (core/quantize.h). With kGiven the scale
// is an argument, and amax a result.
#pragma once

#include <cstdint>

#include "kernels/passes/row.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

// The work of the two granularities:
//
//   row     One warp or one CTA quantizes a row. Shared memory caches the row between amax and
//           division; a row that is too long for it is read twice.
//   tensor  Two kernels. The first finds amax, with one atomicMax per CTA. The second divides and
//           walks the tensor backwards: it starts with what is still in L2. With a given scale one
//           kernel divides and finds amax.

inline constexpr int kCachedRounds = 2;  // rounds of four vectors per thread, of "row"
inline constexpr int kTileVectors = 8;   // vectors per thread, of "tensor"

// kThreadsPerRow threads, 32 or the CTA, quantize a row. Shared memory caches what kCachedRounds
// rounds have loaded: registers cannot be indexed dynamically, and unrolled rounds would spill.
// With kTwice a row has more rounds and is loaded a second time, from L2.
template <DType kType, int kThreadsPerRow, bool kTwice, bool kGiven>
__global__ void __launch_bounds__(kQuantizeThreads, kTwice ? 3 : 4)
    quantize_rows(const __grid_constant__ QuantizeParams params) {
  __shared__ uint4 cached[kTwice ? 1 : kCachedRounds][kRowsPerThread][kQuantizeThreads];
  __shared__ float shared[2][kQuantizeWarps];
  constexpr int kRowsPerBlock = kQuantizeThreads / kThreadsPerRow;
  constexpr int kRoundVectors = kRowsPerThread * kThreadsPerRow;
  const int thread = threadIdx.x % kThreadsPerRow;
  const std::int64_t rows = params.rows * params.batch;
  int buffer = 0;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t index = std::int64_t(blockIdx.x) * kRowsPerBlock + threadIdx.x / kThreadsPerRow;
       index < rows; index += std::int64_t(gridDim.x) * kRowsPerBlock, buffer ^= 1) {
    const QuantizeRow<kType> row(params, index);
    const int rounds = (row.vectors() + kRoundVectors - 1) / kRoundVectors;
    MaxAbs<kType, kGiven> max_abs;
    uint4 vectors[kRowsPerThread];
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      row.template load<kThreadsPerRow>(round * kRoundVectors, thread,
                                        kTwice ? ptx::evict_normal() : ptx::evict_first(), vectors);
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) {
        max_abs.add(vectors[i]);
        if constexpr (!kTwice) cached[round][i][threadIdx.x] = vectors[i];
      }
    }
    const float amax = kThreadsPerRow == 32 ? lanes_max<32>(max_abs.value())
                                            : block_max(max_abs.value(), shared[buffer]);
    const float scale = group_scale<kGiven>(params, index, amax, thread == 0);
    const Divisor<kType, kGiven> divisor(scale, params.to);
#pragma unroll 1
    for (int round = rounds - 1; round >= 0; --round) {
      if constexpr (kTwice) {
        row.template load<kThreadsPerRow>(round * kRoundVectors, thread, ptx::evict_first(),
                                          vectors);
      } else {
#pragma unroll
        for (int i = 0; i < kRowsPerThread; ++i) vectors[i] = cached[round][i][threadIdx.x];
      }
      row.template store<kThreadsPerRow>(round * kRoundVectors, thread, vectors, divisor,
                                         params.to);
    }
  }
}

// Views a tensor without gaps between rows and batches as one long row.
constexpr QuantizeParams flatten(QuantizeParams params) {
  const TensorRef& x = params.x;
  if (x.stride_col == 1 && (params.rows == 1 || x.stride_row == params.cols)) {
    params.cols *= params.rows;
    params.rows = 1;
    if (params.batch == 1 || x.stride_batch == params.cols) {
      params.cols *= params.batch;
      params.batch = 1;
    }
  }
  return params;
}

// Returns the tiles of a row: a tile is kTileVectors vectors per thread. One more vector is allowed
// for, since the first one may start before the row.
constexpr std::int64_t tiles_per_row(const QuantizeParams& params, int size) {
  return ceil_div(params.cols + kVectorBytes / size - 1,
                  kQuantizeThreads * kTileVectors * kVectorBytes / size);
}

constexpr std::int64_t tensor_tiles(const QuantizeParams& params, int size) {
  return params.rows * params.batch * tiles_per_row(params, size);
}

// Calls f(row, first vector) for the tiles of this CTA, four vectors per thread at a time.
template <DType kType, class Function>
__device__ inline void for_each_tensor_tile(const QuantizeParams& params, bool backwards,
                                            const Function& f) {
  const std::int64_t row_tiles = tiles_per_row(params, bytes(kType));
  const std::int64_t tiles = tensor_tiles(params, bytes(kType));
  for (std::int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const std::int64_t tile = backwards ? tiles - 1 - i : i;
    const std::int64_t index = quotient(tile, row_tiles);
    const QuantizeRow<kType, std::int64_t> row(params, index);
    std::int64_t base = (tile - index * row_tiles) * (kQuantizeThreads * kTileVectors);
#pragma unroll 1
    for (int j = 0; j < kTileVectors;
         j += kRowsPerThread, base += kQuantizeThreads * kRowsPerThread)
      if (base < row.vectors()) f(row, base);
  }
}

template <DType kType>
__global__ void __launch_bounds__(kQuantizeThreads, 4)
    amax_of_tensor(const __grid_constant__ QuantizeParams original) {
  __shared__ float shared[kQuantizeWarps];
  const QuantizeParams params = flatten(original);
  MaxAbs<kType, false> max_abs;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for_each_tensor_tile<kType>(params, false, [&](const auto& row, std::int64_t base) {
    uint4 vectors[kRowsPerThread];
    row.template load<kQuantizeThreads>(base, threadIdx.x, ptx::evict_normal(), vectors);
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) max_abs.add(vectors[i]);
  });
  const float amax = block_max(max_abs.value(), shared);
  if (threadIdx.x == 0) atomicMax(params.amax, __float_as_uint(amax));
}

template <DType kType, bool kGiven>
__global__ void __launch_bounds__(kQuantizeThreads, kGiven ? 3 : 4)
    quantize_tensor(const __grid_constant__ QuantizeParams original) {
  __shared__ float shared[kQuantizeWarps];
  const QuantizeParams params = flatten(original);
  MaxAbs<kType, kGiven> max_abs;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  const float scale = kGiven ? *params.scales : scale_of(__uint_as_float(*params.amax), params.to);
  if (!kGiven && blockIdx.x == 0 && threadIdx.x == 0) *params.scales = scale;
  const Divisor<kType, kGiven> divisor(scale, params.to);
  for_each_tensor_tile<kType>(params, true, [&](const auto& row, std::int64_t base) {
    uint4 vectors[kRowsPerThread];
    row.template load<kQuantizeThreads>(base, threadIdx.x, ptx::evict_first(), vectors);
    if constexpr (kGiven) {
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) max_abs.add(vectors[i]);
    }
    row.template store<kQuantizeThreads>(base, threadIdx.x, vectors, divisor, params.to);
  });
  if constexpr (kGiven) {
    const float amax = block_max(max_abs.value(), shared);
    if (threadIdx.x == 0) atomicMax(params.amax, __float_as_uint(amax));
  }
}

}  // namespace tcgemm::passes
