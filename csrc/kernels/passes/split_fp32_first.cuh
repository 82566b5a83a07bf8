// The first split pass finds ranges and statistics and writes f16 terms, with one read of the
// operand. docs/dev/kernels/passes.md says what was tried.
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

inline constexpr int kSplitWarps = kSplitThreads / 32;
inline constexpr int kMaxStripVectors = 8;

// Each vector has the extremes of four adjacent columns.
using StripExtremes = uint4[kExtremes][kMaxStripVectors];

struct FirstPassStorage {
  uint4 cached[kThreadVectors][kSplitThreads];
  StripExtremes warp_extremes[kSplitWarps];
  StripExtremes cluster_extremes[2][kMaxCluster];  // two buffers, an entry for each CTA
  std::uint64_t barriers[2];
  uint4 ranges[kMaxStripVectors];
  uint2 row_extremes[2][kSplitWarps];
  std::uint32_t statistics;  // of the units so far
};

// The steps of the pass:
//
//   load -> extremes of a thread -> extremes of its row or columns -> ranges -> terms
//
// A thread holds eight vectors in registers and eight more in shared memory. A row or strip that is
// longer than that is read a second time, from L2, starting with the vectors that were read last.
// The threads of a row reduce within a CTA. Strips of columns reduce within each CTA, and then each
// CTA of the cluster stores its extremes to all others.
class FirstPass {
 public:
  __device__ FirstPass(const SplitFp32PassParams& params, FirstPassStorage& shared)
      : params_(params), shared_(shared) {}

  // Processes this CTA's units of one operand and writes their statistics. MN-major operands come
  // first: their CTAs take longest. All CTAs of a cluster get the same operand and the same strips.
  __device__ void run() {
    const int blocks = params_.operands[0].partition.blocks;
    const bool second = blockIdx.x >= blocks;
    const SplitFp32Operand& operand = params_.operands[second];
    const SplitFp32Partition& partition = operand.partition;
    const bool is_strip = operand.mn_major;
    const int block = second ? blockIdx.x - blocks : blockIdx.x;
    const int index = is_strip ? block >> (__ffs(params_.cluster) - 1) : block;
    if (threadIdx.x == 0) shared_.statistics = 0;
    if (is_strip) init_cluster();
    __syncthreads();
    if (index < partition.statistics)
      for (int unit = index; unit < partition.units; unit += partition.statistics, ++iteration_)
        is_strip ? process_strip(operand, unit) : process_rows(operand, unit);
    __syncthreads();
    ptx::wait_for_prerequisites();
    if (threadIdx.x == 0 && index < partition.statistics && (!is_strip || ptx::cluster_rank() == 0))
      operand.statistics[index] = shared_.statistics;
  }

 private:
  __device__ std::uint32_t barrier(int buffer) const {
    return ptx::shared_address(&shared_.barriers[buffer]);
  }

  // All CTAs of the cluster call this before one of them stores to another.
  __device__ void init_cluster() {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(barrier(0), 1);
      ptx::mbarrier_init(barrier(1), 1);
      ptx::fence_mbarrier_init();
    }
    // CTAs that the cluster does not have contribute zeros to the maxima.
    constexpr int kVectorsPerBlock = kExtremes * kMaxStripVectors;
    if (threadIdx.x / kVectorsPerBlock % kMaxCluster >= params_.cluster)
      reinterpret_cast<uint4*>(shared_.cluster_extremes)[threadIdx.x] = {};
    static_assert(sizeof(shared_.cluster_extremes) == kSplitThreads * sizeof(uint4));
    ptx::cluster_sync();
  }

  __device__ void process_rows(const SplitFp32Operand& operand, int unit) {
    const int log_threads = operand.partition.log_size;
    const std::int64_t index =
        (std::int64_t(unit) << (kLogSplitThreads - log_threads)) + (threadIdx.x >> log_threads);
    const RowVectors vectors(operand, index, log_threads, 0);
    const bool first = vectors.vector == 0 && vectors.row >= 0;
    split_unit<1>(operand, vectors, [&](const Extremes(&extremes)[1], Range(&ranges)[1]) {
      ranges[0] = row_range(extremes[0], 1 << log_threads);
      if (!first) return;
      operand.ranges[index] = ranges[0];
      add_statistics(shared_.statistics, ranges[0]);
    });
  }

  __device__ Range row_range(const Extremes& extremes, int row_threads) {
    std::uint32_t x[kExtremes] = {extremes.largest, ~extremes.smallest};
    lanes_max(x, 1, min(row_threads, 32));
    if (row_threads > 32) {
      uint2(&warps)[kSplitWarps] = shared_.row_extremes[iteration_ & 1];
      const int warp = threadIdx.x / 32, others = row_threads / 32 - 1;
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

  __device__ void process_strip(const SplitFp32Operand& operand, int unit) {
    const SplitFp32Partition& partition = operand.partition;
    const int batch = operand.batch > 1 ? unit / partition.strips : 0;
    const int column = (unit - batch * partition.strips)
                       << (partition.log_size + kLogVectorElements);
    const int begin = static_cast<int>(ptx::cluster_rank()) * partition.k_per_block;
    const int end = min(begin + partition.k_per_block, static_cast<int>(operand.k));
    const ColumnVectors vectors(batch, column, begin, end, partition.log_size);
    const int vector = threadIdx.x & ((1 << partition.log_size) - 1);
    split_unit<kVectorElements>(
        operand, vectors,
        [&](const Extremes(&extremes)[kVectorElements], Range(&ranges)[kVectorElements]) {
          reduce_warps(extremes, 1 << partition.log_size);
          store_to_cluster(partition.log_size);
          if (threadIdx.x < 32) reduce_cluster(operand, batch, column);
          __syncthreads();
          const uint4 four = shared_.ranges[vector];
          ranges[0] = four.x, ranges[1] = four.y, ranges[2] = four.z, ranges[3] = four.w;
        });
  }

  // Reduces each warp's extremes and writes them to shared memory.
  __device__ void reduce_warps(const Extremes (&extremes)[kVectorElements], int vectors) {
    std::uint32_t x[kExtremes * kVectorElements];
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      x[i] = extremes[i].largest;
      x[kVectorElements + i] = ~extremes[i].smallest;
    }
    lanes_max(x, vectors, 32);
    const int lane = threadIdx.x % 32;
    if (lane < vectors) {
#pragma unroll
      for (int i = 0; i < kExtremes; ++i) {
        const std::uint32_t* four = x + i * kVectorElements;
        shared_.warp_extremes[threadIdx.x / 32][i][lane] = {four[0], four[1], four[2], four[3]};
      }
    }
    __syncthreads();
  }

  // Stores this CTA's extremes to every CTA of the cluster. There are two buffers: a CTA that fills
  // one again has received later extremes of all others, so they have read this one.
  __device__ void store_to_cluster(int size) {
    const int buffer = iteration_ & 1, rank = threadIdx.x >> (size + 1);
    if (threadIdx.x == 0)
      ptx::mbarrier_arrive_expect(barrier(buffer), (params_.cluster * sizeof(uint4)) << (size + 1));
    if (rank >= params_.cluster) return;
    const int i = threadIdx.x >> size & 1, vector = threadIdx.x & ((1 << size) - 1);
    uint4 x{};
#pragma unroll
    for (int warp = 0; warp < kSplitWarps; ++warp) {
      const uint4 other = shared_.warp_extremes[warp][i][vector];
      x = {max(x.x, other.x), max(x.y, other.y), max(x.z, other.z), max(x.w, other.w)};
    }
    const std::uint32_t to =
        ptx::shared_address(&shared_.cluster_extremes[buffer][ptx::cluster_rank()][i][vector]);
    ptx::store_async(ptx::remote_address(to, rank), ptx::remote_address(barrier(buffer), rank), x);
  }

  // One warp reduces the extremes of all CTAs, one lane per column.
  __device__ void reduce_cluster(const SplitFp32Operand& operand, int batch, int first) {
    const int buffer = iteration_ & 1, lane = threadIdx.x, column = first + lane;
    ptx::mbarrier_wait(barrier(buffer), iteration_ >> 1 & 1);
    if (lane >= kVectorElements << operand.partition.log_size) return;
    std::uint32_t x[kExtremes] = {};
#pragma unroll
    for (int rank = 0; rank < kMaxCluster; ++rank)
#pragma unroll
      for (int i = 0; i < kExtremes; ++i)
        x[i] = max(x[i], reinterpret_cast<const std::uint32_t*>(
                             shared_.cluster_extremes[buffer][rank][i])[lane]);
    const Range range = range_of(x[0], x[1]);
    reinterpret_cast<Range*>(shared_.ranges)[lane] = range;
    if (column >= operand.rows) return;
    add_statistics(shared_.statistics, range);
    if (ptx::cluster_rank() == 0) operand.ranges[batch * operand.rows + column] = range;
  }

  // reduce(extremes, ranges) reduces over the threads that hold vectors of the same row or columns.
  template <int kRows, class Vectors, class Reduce>
  __device__ void split_unit(const SplitFp32Operand& operand, const Vectors& vectors,
                             const Reduce& reduce) {
    ThreadVectors x;
    Extremes extremes[kRows];
    const int last = operand.partition.rounds - 1;
    ptx::wait_for_prerequisites();
    int round = 0;
#pragma unroll 1
    while (true) {
      load(vectors.loads(operand, round), ptx::evict_normal(), x);
#pragma unroll
      for (int i = 0; i < kThreadVectors; ++i)
#pragma unroll
        for (int j = 0; j < kVectorElements; ++j) extremes[j % kRows].add(x[i][j]);
      if (round == last) break;
      if (round == last - 1) {
#pragma unroll
        for (int i = 0; i < kThreadVectors; ++i)
          shared_.cached[i][threadIdx.x] = {x[i][0], x[i][1], x[i][2], x[i][3]};
      }
      ++round;
    }
    Range ranges[kRows];
    reduce(extremes, ranges);
    // With so many wide rows the second pass writes bf16 terms in place of these.
    const auto* statistics = static_cast<const volatile std::uint32_t*>(&shared_.statistics);
    if (params_.bf16 || wide_range_rows(*statistics) >= kMaxWideRows) return;
#pragma unroll 1
    while (true) {
      store<kF16Terms>(vectors.stores(operand, round), x, ranges, kF16Top, operand.term_stride);
      if (round == 0) break;
      --round;
      if (round < last - 1) {
        load(vectors.loads(operand, round), ptx::evict_first(), x);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kThreadVectors; ++i) {
        const uint4 vector = shared_.cached[i][threadIdx.x];
        x[i][0] = vector.x, x[i][1] = vector.y, x[i][2] = vector.z, x[i][3] = vector.w;
      }
    }
  }

  const SplitFp32PassParams& params_;
  FirstPassStorage& shared_;
  int iteration_ = 0;
};

// Four CTAs per SM: 64 registers per thread hold all loads in flight.
__global__ void __launch_bounds__(kSplitThreads, 4)
    split_in_f16(const __grid_constant__ SplitFp32PassParams params) {
  if constexpr (ptx::kArch >= 90) {
    __shared__ FirstPassStorage shared;
    ptx::launch_dependents();
    FirstPass(params, shared).run();
  } else {
    __trap();
  }
}

}  // namespace tcgemm::passes
