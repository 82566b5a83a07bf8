// The first split pass: ranges, notes and f16 parts, with one read of the operands.
//
//   read -> extremes of a thread -> of its row or columns -> range -> parts of what threads hold
//
// Each thread holds eight words in registers and eight more in shared memory; lines that are longer
// than that are read a second time, from L2, where the last ones read come first. Rows agree within
// a block; strips of columns in two steps, within each block and then among those of a cluster,
// each of which sends to all of them.
//
// On an H200 that takes as long as a copy of the same bytes (2048 x 2048 twice, from cold memory,
// 19 us; 8192 x 8192 280 us, with strips of columns 355). Tried: parts in stores of 16 bytes, by an
// exchange among lanes, 10 % slower; three blocks a multiprocessor with more registers, the same;
// operands that leave L2 first, 5 % slower at 8192.
#pragma once

#include <cstdint>

#include "kernels/passes/split_fp32_range.cuh"
#include "kernels/passes/split_fp32_vectors.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent.cuh"
#include "ptx/device_arch.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::passes {

inline constexpr int kSplitWarps = kSplitBlock / 32;
inline constexpr int kStripWords = 8;  // at most

// Of four neighbouring columns each, for each of kExtremes.
using StripExtremes = uint4[kExtremes][kStripWords];

struct FirstShared {
  uint4 held[kHeldWords][kSplitBlock];
  StripExtremes found[kSplitWarps];
  StripExtremes sent[2][kLargestCluster];  // by each block of the cluster; turns
  std::uint64_t barriers[2];
  uint4 ranges[kStripWords];
  uint2 rows[2][kSplitWarps];
  std::uint32_t tally;  // the note so far
};

class FirstPass {
 public:
  __device__ FirstPass(const SplitFp32PassParams& params, FirstShared& shared)
      : params_(params), shared_(shared) {}

  // This block's units of one operand, and their note. MN-major operands come first: their blocks
  // take longest. All blocks of a cluster come to the same operand, and strips.
  __device__ void run() {
    const int blocks = params_.operands[0].cut.blocks;
    const bool second = blockIdx.x >= blocks;
    const SplitFp32Operand& operand = params_.operands[second];
    const SplitFp32Partition& cut = operand.cut;
    const bool strips = operand.mn_major;
    const int block = second ? blockIdx.x - blocks : blockIdx.x;
    const int index = strips ? block >> (__ffs(params_.cluster) - 1) : block;
    if (threadIdx.x == 0) shared_.tally = 0;
    if (strips) meet();
    __syncthreads();
    if (index < cut.statistics)
      for (int unit = index; unit < cut.units; unit += cut.statistics, ++turn_)
        strips ? strip(operand, unit) : rows(operand, unit);
    __syncthreads();
    ptx::wait_for_prerequisites();
    if (threadIdx.x == 0 && index < cut.statistics && (!strips || ptx::cluster_rank() == 0))
      operand.statistics[index] = shared_.tally;
  }

 private:
  __device__ std::uint32_t barrier(int turn) const {
    return ptx::shared_address(&shared_.barriers[turn]);
  }

  // Before a block of the cluster, all of which come here, sends to others.
  __device__ void meet() {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(barrier(0), 1);
      ptx::mbarrier_init(barrier(1), 1);
      ptx::fence_mbarrier_init();
    }
    // What no block will send counts for nothing.
    constexpr int kOneSends = kExtremes * kStripWords;
    if (threadIdx.x / kOneSends % kLargestCluster >= params_.cluster)
      reinterpret_cast<uint4*>(shared_.sent)[threadIdx.x] = {};
    static_assert(sizeof(shared_.sent) == kSplitBlock * sizeof(uint4));
    ptx::cluster_sync();
  }

  __device__ void rows(const SplitFp32Operand& operand, int unit) {
    const int team = operand.cut.size;
    const std::int64_t index = (std::int64_t(unit) << (kLogBlock - team)) + (threadIdx.x >> team);
    const RowWords words(operand, index, team, 0);
    const bool first = words.word == 0 && words.row >= 0;
    split<1>(operand, words, [&](const Extremes(&extremes)[1], Range(&ranges)[1]) {
      ranges[0] = row_range(extremes[0], 1 << team);
      if (!first) return;
      operand.ranges[index] = ranges[0];
      add_statistics(shared_.tally, ranges[0]);
    });
  }

  __device__ Range row_range(const Extremes& extremes, int team) {
    std::uint32_t x[kExtremes] = {extremes.largest, ~extremes.smallest};
    lanes_maximum(x, 1, min(team, 32));
    if (team > 32) {
      uint2(&warps)[kSplitWarps] = shared_.rows[turn_ & 1];
      const int warp = threadIdx.x / 32, others = team / 32 - 1;
      if (threadIdx.x % 32 == 0) warps[warp] = {x[0], x[1]};
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kSplitWarps; ++i) {
        const uint2 other = warps[(warp & ~others) + (i & others)];
        x[0] = max(x[0], other.x);
        x[1] = max(x[1], other.y);
      }
    }
    return range_of(x[0], x[1]);
  }

  __device__ void strip(const SplitFp32Operand& operand, int unit) {
    const SplitFp32Partition& cut = operand.cut;
    const int batch = operand.batch > 1 ? unit / cut.across : 0;
    const int column = (unit - batch * cut.across) << (cut.size + kLogWord);
    const int begin = static_cast<int>(ptx::cluster_rank()) * cut.lines;
    const int end = min(begin + cut.lines, static_cast<int>(operand.k));
    const ColumnWords words(batch, column, begin, end, cut.size);
    const int word = threadIdx.x & ((1 << cut.size) - 1);
    split<kWordElements>(
        operand, words,
        [&](const Extremes(&extremes)[kWordElements], Range(&ranges)[kWordElements]) {
          find(extremes, 1 << cut.size);
          send(cut.size);
          if (threadIdx.x < 32) receive(operand, batch, column);
          __syncthreads();
          const uint4 four = shared_.ranges[word];
          ranges[0] = four.x, ranges[1] = four.y, ranges[2] = four.z, ranges[3] = four.w;
        });
  }

  // Of a warp, in shared memory.
  __device__ void find(const Extremes (&extremes)[kWordElements], int words) {
    std::uint32_t x[kExtremes * kWordElements];
#pragma unroll
    for (int i = 0; i < kWordElements; ++i) {
      x[i] = extremes[i].largest;
      x[kWordElements + i] = ~extremes[i].smallest;
    }
    lanes_maximum(x, words, 32);
    const int lane = threadIdx.x % 32;
    if (lane < words) {
#pragma unroll
      for (int i = 0; i < kExtremes; ++i) {
        const std::uint32_t* four = x + i * kWordElements;
        shared_.found[threadIdx.x / 32][i][lane] = {four[0], four[1], four[2], four[3]};
      }
    }
    __syncthreads();
  }

  // Of this block, to every block of the cluster. Who sends the next but one has heard from all
  // that they have read this one.
  __device__ void send(int size) {
    const int turn = turn_ & 1, rank = threadIdx.x >> (size + 1);
    if (threadIdx.x == 0)
      ptx::mbarrier_arrive_expect(barrier(turn), (params_.cluster * sizeof(uint4)) << (size + 1));
    if (rank >= params_.cluster) return;
    const int i = threadIdx.x >> size & 1, word = threadIdx.x & ((1 << size) - 1);
    uint4 x{};
#pragma unroll
    for (int warp = 0; warp < kSplitWarps; ++warp) {
      const uint4 other = shared_.found[warp][i][word];
      x = {max(x.x, other.x), max(x.y, other.y), max(x.z, other.z), max(x.w, other.w)};
    }
    ptx::store_async(ptx::shared_address(&shared_.sent[turn][ptx::cluster_rank()][i][word]),
                     barrier(turn), rank, x);
  }

  // One warp: a lane a column.
  __device__ void receive(const SplitFp32Operand& operand, int batch, int first) {
    const int turn = turn_ & 1, lane = threadIdx.x, column = first + lane;
    ptx::mbarrier_wait(barrier(turn), turn_ >> 1 & 1);
    if (lane >= kWordElements << operand.cut.size) return;
    std::uint32_t x[kExtremes] = {};
#pragma unroll
    for (int rank = 0; rank < kLargestCluster; ++rank)
#pragma unroll
      for (int i = 0; i < kExtremes; ++i)
        x[i] = max(x[i], reinterpret_cast<const std::uint32_t*>(shared_.sent[turn][rank][i])[lane]);
    const Range range = range_of(x[0], x[1]);
    reinterpret_cast<Range*>(shared_.ranges)[lane] = range;
    if (column >= operand.rows) return;
    add_statistics(shared_.tally, range);
    if (ptx::cluster_rank() == 0) operand.ranges[batch * operand.rows + column] = range;
  }

  // agree(extremes, ranges) knows the others that hold words of the same row or columns.
  template <int kRows, class Words, class Agree>
  __device__ void split(const SplitFp32Operand& operand, const Words& words, const Agree& agree) {
    HeldWords x;
    Extremes extremes[kRows];
    const int last = operand.cut.rounds - 1;
    ptx::wait_for_prerequisites();
    int round = 0;
#pragma unroll 1
    while (true) {
      read(words.reads(operand, round), ptx::evict_normal(), x);
#pragma unroll
      for (int i = 0; i < kHeldWords; ++i)
#pragma unroll
        for (int j = 0; j < kWordElements; ++j) extremes[j % kRows].add(x[i][j]);
      if (round == last) break;
      if (round == last - 1) {
#pragma unroll
        for (int i = 0; i < kHeldWords; ++i)
          shared_.held[i][threadIdx.x] = {x[i][0], x[i][1], x[i][2], x[i][3]};
      }
      ++round;
    }
    Range ranges[kRows];
    agree(extremes, ranges);
    // So many wide rows are reason enough for bf16 parts, which come in the place of these.
    const auto* tally = static_cast<const volatile std::uint32_t*>(&shared_.tally);
    if (params_.bf16 || wide_range_rows(*tally) >= kWideRows) return;
#pragma unroll 1
    while (true) {
      write<kF16Terms>(words.writes(operand, round), x, ranges, kF16Top, operand.distance);
      if (round == 0) break;
      --round;
      if (round < last - 1) {
        read(words.reads(operand, round), ptx::evict_first(), x);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kHeldWords; ++i) {
        const uint4 word = shared_.held[i][threadIdx.x];
        x[i][0] = word.x, x[i][1] = word.y, x[i][2] = word.z, x[i][3] = word.w;
      }
    }
  }

  const SplitFp32PassParams& params_;
  FirstShared& shared_;
  int turn_ = 0;
};

// Four blocks a multiprocessor: 64 registers a thread hold what is in flight.
__global__ void __launch_bounds__(kSplitBlock, 4)
    split_in_f16(const __grid_constant__ SplitFp32PassParams params) {
  if constexpr (ptx::kArch >= 90) {
    __shared__ FirstShared shared;
    ptx::launch_dependents();
    FirstPass(params, shared).run();
  } else {
    __trap();
  }
}

}  // namespace tcgemm::passes
