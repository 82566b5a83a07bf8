// The second split pass decides between f16 and bf16 terms, and writes bf16 terms if needed.
//
// Every CTA reads all statistics and reaches the same decision, so that no CTA waits for another.
// Mostly that is all it does. The first pass has written the ranges: bf16 terms need one read of
// the operand.
#pragma once

#include <cstdint>

#include "kernels/passes/split_fp32_range.cuh"
#include "kernels/passes/split_fp32_vectors.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

// Three counters in one integer: statistics with wide rows, with values out of range, and with too
// many wide rows. At most 1024 statistics are added, so no counter carries into the next.
constexpr std::uint32_t kOneWide = 1, kOneOutOfRange = 1 << 11, kOneTooWide = 1 << 21;
static_assert(2 * kMaxSplitStatistics < kOneOutOfRange && kOneTooWide / kOneOutOfRange == 1024);

__device__ inline std::uint32_t counts_of(std::uint32_t statistics) {
  std::uint32_t counts = 0;
  if (wide_range_rows(statistics) > 0) counts += kOneWide;
  if (wide_range_rows(statistics) >= kMaxWideRows) counts += kOneTooWide;
  if (out_of_range(statistics)) counts += kOneOutOfRange;
  return counts;
}

// Returns the same decision in all threads of the CTA.
__device__ inline std::uint32_t decision(const SplitFp32PassParams& params) {
  constexpr int kPerThread = kMaxSplitStatistics / kSplitThreads;
  __shared__ std::uint32_t shared[kSplitThreads / 32];
  std::uint32_t statistics[2][kPerThread] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int index = j * kSplitThreads + threadIdx.x;
      if (params.statistics[i] != nullptr && index < params.statistics_counts[i])
        statistics[i][j] = params.statistics[i][index];
    }
  std::uint32_t counts = 0;
#pragma unroll
  for (int i = 0; i < 2 * kPerThread; ++i)
    counts += counts_of(statistics[i / kPerThread][i % kPerThread]);
  counts = __reduce_add_sync(kAllLanes, counts);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = counts;
  __syncthreads();
  counts = 0;
#pragma unroll
  for (int i = 0; i < kSplitThreads / 32; ++i) counts += shared[i];
  if (params.bf16 || counts >= kOneTooWide || counts % kOneOutOfRange >= kMaxWideStatistics)
    return kUseBf16 | kNeedsChecks;
  return counts != 0 ? kNeedsChecks : 0;
}

__device__ inline void clear_recompute_mask(const SplitFp32PassParams& params) {
  const std::int64_t threads = std::int64_t(gridDim.x) * kSplitThreads;
  const std::int64_t thread = std::int64_t(blockIdx.x) * kSplitThreads + threadIdx.x;
  const std::int64_t vectors = params.recompute_mask_bytes / sizeof(uint4);
  for (std::int64_t i = thread; i < vectors; i += threads)
    reinterpret_cast<uint4*>(params.recompute_mask)[i] = {};
  const std::int64_t rest = vectors * sizeof(uint4) + thread;
  if (rest < params.recompute_mask_bytes) params.recompute_mask[rest] = 0;
}

// Splits this thread's vectors of one unit of an operand.
__device__ inline void split_unit(const SplitFp32Operand& operand, int unit, int top) {
  ThreadVectors x;
  if (operand.mn_major) {
    const int size = log_tile_vectors(operand.rows), strips = int(strip_count(operand.rows, size));
    const int k_tiles = tiles_along_k(operand.k, size), strip = unit / k_tiles;
    const int batch = operand.batch > 1 ? strip / strips : 0;
    const int first = (strip - batch * strips) << (size + kLogVectorElements);
    const int begin = (unit - strip * k_tiles) << log_tile_depth(size);
    const int k = static_cast<int>(operand.k);
    const ColumnVectors vectors(batch, first, begin, min(begin + (1 << log_tile_depth(size)), k),
                                size);
    load(vectors.loads(operand, 0), ptx::evict_first(), x);
    Range ranges[kVectorElements] = {};
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i)
      if (vectors.column + i < operand.rows)
        ranges[i] = operand.ranges[batch * operand.rows + vectors.column + i];
    store<kBf16Terms>(vectors.stores(operand, 0), x, ranges, top, operand.term_stride);
  } else {
    const int log_threads = operand.partition.log_size, group = unit / operand.partition.rounds;
    const std::int64_t index =
        (std::int64_t(group) << (kLogSplitThreads - log_threads)) + (threadIdx.x >> log_threads);
    const RowVectors vectors(operand, index, log_threads, unit - group * operand.partition.rounds);
    if (vectors.row < 0) return;
    load(vectors.loads(operand, 0), ptx::evict_first(), x);
    const Range ranges[] = {operand.ranges[index]};
    store<kBf16Terms>(vectors.stores(operand, 0), x, ranges, top, operand.term_stride);
  }
}

__global__ void __launch_bounds__(kSplitThreads, 4)
    split_in_bf16(const __grid_constant__ SplitFp32PassParams params) {
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  const std::uint32_t decision = passes::decision(params);
  if (blockIdx.x == 0 && threadIdx.x == 0) *params.decision = decision;
  if (decision & kNeedsChecks) clear_recompute_mask(params);
  if ((decision & kUseBf16) == 0) return;
  for (int i = 0; i < params.count; ++i)
    for (std::int64_t unit = blockIdx.x; unit < second_units(params.operands[i]); unit += gridDim.x)
      split_unit(params.operands[i], unit, params.top);
}

}  // namespace tcgemm::passes
