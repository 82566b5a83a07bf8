// Quantising with a scale for each row, or one for all elements: core/quantize.h.
//
//   row     a warp or a block a row, which shared memory holds between maximum and division; what
//           it cannot hold is read twice
//   tensor  two kernels: the largest element, by an atomic maximum a block, then the division,
//           which walks backwards so that it begins with what L2 still holds
#pragma once

#include <cstdint>

#include "kernels/passes/row.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

inline constexpr int kHeld = 2;  // rounds of four chunks a thread of "row"
inline constexpr int kSpan = 8;  // chunks a thread of "tensor"

// A row for each kTeam threads, 32 or the block. Between maximum and division shared memory holds
// what kHeld rounds have read: registers cannot be counted through, and unrolled rounds would
// spill. Rows that have more rounds are read twice, the second time from L2.
template <DType kType, int kTeam, bool kTwice>
__global__ void __launch_bounds__(kQuantizeBlock, kTwice ? 3 : 4)
    quantize_rows(const __grid_constant__ QuantizeParams params) {
  __shared__ uint4 held[kTwice ? 1 : kHeld][kThreadLines][kQuantizeBlock];
  __shared__ float shared[2][kWarps];
  constexpr int kTeams = kQuantizeBlock / kTeam, kRound = kThreadLines * kTeam;
  const int thread = threadIdx.x % kTeam;
  const std::int64_t rows = params.rows * params.batch;
  int turn = 0;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t index = std::int64_t(blockIdx.x) * kTeams + threadIdx.x / kTeam; index < rows;
       index += std::int64_t(gridDim.x) * kTeams, turn ^= 1) {
    const Row<kType> row(params, index);
    const int rounds = (row.chunks() + kRound - 1) / kRound;
    Largest<kType> largest;
    uint4 chunks[kThreadLines];
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      row.template read<kTeam>(round * kRound, thread,
                               kTwice ? ptx::evict_normal() : ptx::evict_first(), chunks);
#pragma unroll
      for (int i = 0; i < kThreadLines; ++i) {
        largest.add(chunks[i]);
        if constexpr (!kTwice) held[round][i][threadIdx.x] = chunks[i];
      }
    }
    const float amax = kTeam == 32 ? lanes_largest<32>(largest.value())
                                   : block_largest(largest.value(), shared[turn]);
    const float scale = scale_of(amax, params.to);
    if (thread == 0) params.scales[index] = scale;
    const Divisor<kType> divisor(scale);
#pragma unroll 1
    for (int round = rounds - 1; round >= 0; --round) {
      if constexpr (kTwice) {
        row.template read<kTeam>(round * kRound, thread, ptx::evict_first(), chunks);
      } else {
#pragma unroll
        for (int i = 0; i < kThreadLines; ++i) chunks[i] = held[round][i][threadIdx.x];
      }
      row.template write<kTeam>(round * kRound, thread, chunks, divisor, params.to);
    }
  }
}

// Without gaps between rows or batches a tensor is one long row.
constexpr QuantizeParams flat(QuantizeParams params) {
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

// Spans of a row: kSpan chunks for each thread, and room for one that is not whole.
constexpr std::int64_t spans_across(const QuantizeParams& params, int size) {
  return ceil_div(params.cols + kChunk / size - 1, kQuantizeBlock * kSpan * kChunk / size);
}

constexpr std::int64_t spans(const QuantizeParams& params, int size) {
  return params.rows * params.batch * spans_across(params, size);
}

// f(row, first chunk) for the spans of this block, four chunks a thread at a time.
template <DType kType, class Function>
__device__ inline void each_span(const QuantizeParams& params, bool backwards, const Function& f) {
  const std::int64_t across = spans_across(params, bytes(kType));
  const std::int64_t all = spans(params, bytes(kType));
  for (std::int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const std::int64_t span = backwards ? all - 1 - i : i;
    const std::int64_t index = quotient(span, across);
    const Row<kType, std::int64_t> row(params, index);
    std::int64_t base = (span - index * across) * (kQuantizeBlock * kSpan);
#pragma unroll 1
    for (int j = 0; j < kSpan; j += kThreadLines, base += kQuantizeBlock * kThreadLines)
      if (base < row.chunks()) f(row, base);
  }
}

template <DType kType>
__global__ void __launch_bounds__(kQuantizeBlock, 4)
    largest_of_tensor(const __grid_constant__ QuantizeParams asked) {
  __shared__ float shared[kWarps];
  const QuantizeParams params = flat(asked);
  Largest<kType> largest;
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  each_span<kType>(params, false, [&](const auto& row, std::int64_t base) {
    uint4 chunks[kThreadLines];
    row.template read<kQuantizeBlock>(base, threadIdx.x, ptx::evict_normal(), chunks);
#pragma unroll
    for (int i = 0; i < kThreadLines; ++i) largest.add(chunks[i]);
  });
  const float amax = block_largest(largest.value(), shared);
  if (threadIdx.x == 0) atomicMax(params.amax, __float_as_uint(amax));
}

template <DType kType>
__global__ void __launch_bounds__(kQuantizeBlock, 4)
    quantize_tensor(const __grid_constant__ QuantizeParams asked) {
  const QuantizeParams params = flat(asked);
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  const float scale = scale_of(__uint_as_float(*params.amax), params.to);
  if (blockIdx.x == 0 && threadIdx.x == 0) *params.scales = scale;
  const Divisor<kType> divisor(scale);
  each_span<kType>(params, true, [&](const auto& row, std::int64_t base) {
    uint4 chunks[kThreadLines];
    row.template read<kQuantizeBlock>(base, threadIdx.x, ptx::evict_first(), chunks);
    row.template write<kQuantizeBlock>(base, threadIdx.x, chunks, divisor, params.to);
  });
}

}  // namespace tcgemm::passes
