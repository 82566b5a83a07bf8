// The second split pass: the verdict on both operands, and bf16 parts where that asks for them.
//
// Every block reads all notes and comes to the same verdict, so none waits for another; mostly that
// is all it does. Ranges are there already: bf16 parts are a stream from the operand.
#pragma once

#include <cstdint>

#include "kernels/passes/split_fp32_range.cuh"
#include "kernels/passes/split_fp32_vectors.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

// What one note, or some, come to; sums of them as well: 1024 notes do not carry over.
constexpr std::uint32_t kOneWide = 1, kOneOutOfRange = 1 << 11, kOneTooWide = 1 << 21;
static_assert(2 * kMaxSplitStatistics < kOneOutOfRange && kOneTooWide / kOneOutOfRange == 1024);

__device__ inline std::uint32_t packed_counts(std::uint32_t statistics) {
  std::uint32_t counts = 0;
  if (wide_range_rows(statistics) > 0) counts += kOneWide;
  if (wide_range_rows(statistics) >= kWideRows) counts += kOneTooWide;
  if (out_of_range(statistics)) counts += kOneOutOfRange;
  return counts;
}

// The same in all threads of the block.
__device__ inline std::uint32_t decision(const SplitFp32PassParams& params) {
  constexpr int kOfThread = kMaxSplitStatistics / kSplitBlock;
  __shared__ std::uint32_t shared[kSplitBlock / 32];
  std::uint32_t statistics[2][kOfThread] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < kOfThread; ++j) {
      const int index = j * kSplitBlock + threadIdx.x;
      if (params.statistics[i] != nullptr && index < params.statistics_counts[i])
        statistics[i][j] = params.statistics[i][index];
    }
  std::uint32_t counts = 0;
#pragma unroll
  for (int i = 0; i < 2 * kOfThread; ++i)
    counts += packed_counts(statistics[i / kOfThread][i % kOfThread]);
  counts = __reduce_add_sync(kAllLanes, counts);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = counts;
  __syncthreads();
  counts = 0;
#pragma unroll
  for (int i = 0; i < kSplitBlock / 32; ++i) counts += shared[i];
  if (params.bf16 || counts >= kOneTooWide || counts % kOneOutOfRange >= kWideStatistics)
    return kUseBf16 | kNeedsChecks;
  return counts != 0 ? kNeedsChecks : 0;
}

__device__ inline void clear_recompute_mask(const SplitFp32PassParams& params) {
  const std::int64_t threads = std::int64_t(gridDim.x) * kSplitBlock;
  const std::int64_t thread = std::int64_t(blockIdx.x) * kSplitBlock + threadIdx.x;
  const std::int64_t words = params.recompute_mask_bytes / sizeof(uint4);
  for (std::int64_t i = thread; i < words; i += threads)
    reinterpret_cast<uint4*>(params.recompute_mask)[i] = {};
  const std::int64_t tail = words * sizeof(uint4) + thread;
  if (tail < params.recompute_mask_bytes) params.recompute_mask[tail] = 0;
}

// What this thread holds of one unit of an operand, split.
__device__ inline void split_unit(const SplitFp32Operand& operand, int unit, int top) {
  HeldWords x;
  if (operand.mn_major) {
    const int size = tile_words(operand.rows), across = int(strips(operand.rows, size));
    const int down = tiles_down(operand.k, size), strip = unit / down;
    const int batch = operand.batch > 1 ? strip / across : 0;
    const int first = (strip - batch * across) << (size + kLogWord);
    const int begin = (unit - strip * down) << tile_lines(size), k = static_cast<int>(operand.k);
    const ColumnWords words(batch, first, begin, min(begin + (1 << tile_lines(size)), k), size);
    read(words.reads(operand, 0), ptx::evict_first(), x);
    Range ranges[kWordElements] = {};
#pragma unroll
    for (int i = 0; i < kWordElements; ++i)
      if (words.column + i < operand.rows)
        ranges[i] = operand.ranges[batch * operand.rows + words.column + i];
    write<kBf16Terms>(words.writes(operand, 0), x, ranges, top, operand.distance);
  } else {
    const int team = operand.cut.size, group = unit / operand.cut.rounds;
    const std::int64_t index = (std::int64_t(group) << (kLogBlock - team)) + (threadIdx.x >> team);
    const RowWords words(operand, index, team, unit - group * operand.cut.rounds);
    if (words.row < 0) return;
    read(words.reads(operand, 0), ptx::evict_first(), x);
    const Range ranges[] = {operand.ranges[index]};
    write<kBf16Terms>(words.writes(operand, 0), x, ranges, top, operand.distance);
  }
}

__global__ void __launch_bounds__(kSplitBlock, 4)
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
