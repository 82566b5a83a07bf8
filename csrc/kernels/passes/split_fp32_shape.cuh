// How the split passes partition an f32 operand; host and device code share it.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "core/split_fp32.h"
#include "kernels/kernels.h"
#include "kernels/passes/row.cuh"

namespace tcgemm::passes {

// A thread holds eight 16-byte vectors. The threads that hold one range reduce its extremes.
//
//   K-major    8 to 256 threads process a row; a unit is the rows of a CTA
//   MN-major   a unit is a strip of adjacent columns over all of k; the CTAs of a cluster share it:
//
//                 columns:  16 or 32
//                          |--------|
//                      k | |  rank 0|
//                        v |--------|
//                          |  rank 1|
//                          |--------|
//
// A CTA or cluster writes one statistics word for all of its units. The shape alone decides the
// partition, so that it is the same on every GPU.

using kernels::kSplitThreads;
inline constexpr int kVectorElements = 4;  // 16 bytes of the operand, 8 bytes of a term
inline constexpr int kThreadVectors = 8;   // in registers
inline constexpr int kMaxCluster = 8;
inline constexpr int kMinBlocks = 256;  // about two per SM

// Threads per row, strips and clusters are powers of two. Names with `log` hold the exponent: every
// CTA divides by them.
constexpr std::int64_t ceil_shift(std::int64_t x, int shift) {
  return (x + (std::int64_t(1) << shift) - 1) >> shift;
}
inline constexpr int kLogSplitThreads = 8, kLogVectorElements = 2;
inline constexpr int kLogThreadVectors = 3, kLogMaxCluster = 3;
static_assert(kSplitThreads == 1 << kLogSplitThreads &&
              kVectorElements == 1 << kLogVectorElements &&
              kThreadVectors == 1 << kLogThreadVectors && kMaxCluster == 1 << kLogMaxCluster);

constexpr int vector_count(std::int64_t k) {
  return (static_cast<int>(k) + kVectorElements - 1) >> kLogVectorElements;
}

// Returns log2 of the threads per row: enough to hold the row in registers, and enough for
// kMinBlocks CTAs.
constexpr int log_threads_per_row(const SplitFp32Operand& operand) {
  constexpr int kMinThreads = kMinBlocks * kSplitThreads;
  const int vectors = vector_count(operand.k);
  const std::int64_t all = operand.rows * operand.batch;
  const int rows = all < kMinThreads ? static_cast<int>(all) : kMinThreads;
  int log_threads = 3;
  while (log_threads < kLogSplitThreads && vectors > 1 << log_threads &&
         (vectors > 1 << (log_threads + kLogThreadVectors) || rows << log_threads < kMinThreads))
    ++log_threads;
  return log_threads;
}

constexpr std::int64_t strip_count(std::int64_t rows, int log_vectors) {
  return ceil_shift(rows, log_vectors + kLogVectorElements);
}

// Returns log2 of the vectors across a strip. Eight vectors let 64 bytes of a term be written
// contiguously. Four vectors are for a k that is too long for a cluster to hold eight, and for
// operands with too few strips of eight.
constexpr int log_strip_vectors(const SplitFp32Operand& operand) {
  const std::int64_t wide = strip_count(operand.rows, 3) * operand.batch;
  return operand.k > 4096 || wide * kMaxCluster < kMinBlocks ? 2 : 3;
}

// Computes all of the partition that does not depend on the cluster. No GPU has memory for 2^31
// units.
constexpr SplitFp32Partition partition_of(const SplitFp32Operand& operand) {
  SplitFp32Partition partition;
  std::int64_t units = 0;
  if (operand.mn_major) {
    partition.log_size = log_strip_vectors(operand);
    partition.strips = static_cast<int>(strip_count(operand.rows, partition.log_size));
    units = partition.strips * operand.batch;
  } else {
    partition.log_size = log_threads_per_row(operand);
    partition.rounds = static_cast<int>(
        ceil_shift(vector_count(operand.k), partition.log_size + kLogThreadVectors));
    units = ceil_shift(operand.rows * operand.batch, kLogSplitThreads - partition.log_size);
  }
  partition.units = static_cast<int>(units);
  partition.statistics = units < kMaxSplitStatistics ? partition.units : kMaxSplitStatistics;
  return partition;
}

// Returns log2 of the CTAs that share a strip: enough to hold it in registers, and enough for
// kMinBlocks CTAs. It is at least 1: st.async needs a cluster launch.
constexpr int log_strip_cluster(const SplitFp32Operand& operand) {
  const std::int64_t k = operand.k, all = operand.partition.units;
  const int log_depth = kLogSplitThreads - operand.partition.log_size;
  int cluster = 1;
  while (cluster < kLogMaxCluster && k > 1 << (cluster + log_depth) &&
         (k > 1 << (cluster + log_depth + kLogThreadVectors) || all << cluster < kMinBlocks))
    ++cluster;
  return cluster;
}

// Completes the partition for clusters of 2^`cluster` CTAs. A CTA processes whole rounds of k; the
// last CTAs may have fewer, or none.
constexpr void partition_for_cluster(SplitFp32Operand& operand, int cluster) {
  SplitFp32Partition& partition = operand.partition;
  if (operand.mn_major) {
    const int log_depth = kLogSplitThreads - partition.log_size;
    partition.k_per_block = static_cast<int>(ceil_shift(operand.k, cluster + log_depth))
                            << log_depth;
    partition.rounds =
        static_cast<int>(ceil_shift(partition.k_per_block, log_depth + kLogThreadVectors));
    partition.blocks = partition.statistics << cluster;
  } else {
    partition.blocks = static_cast<int>(ceil_shift(partition.statistics, cluster)) << cluster;
  }
}

// The second pass needs no whole rows or columns: its units are what a CTA holds at once. This is
// log2 of the vectors across a unit of an MN-major operand.
constexpr int log_tile_vectors(std::int64_t rows) { return rows > 64 ? 5 : rows > 32 ? 4 : 3; }
constexpr int log_tile_depth(int log_vectors) {
  return kLogSplitThreads - log_vectors + kLogThreadVectors;
}

constexpr int tiles_along_k(std::int64_t k, int log_vectors) {
  return static_cast<int>(ceil_shift(k, log_tile_depth(log_vectors)));
}

constexpr int second_units(const SplitFp32Operand& operand) {
  if (!operand.mn_major) return operand.partition.units * operand.partition.rounds;
  const int log_vectors = log_tile_vectors(operand.rows);
  return static_cast<int>(strip_count(operand.rows, log_vectors) * operand.batch) *
         tiles_along_k(operand.k, log_vectors);
}

}  // namespace tcgemm::passes
