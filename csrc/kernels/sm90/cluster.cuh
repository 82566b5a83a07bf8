// The position of a CTA in its cluster, for kernels that are launched with clusters and for those
// that are not.
#pragma once

#include <cstdint>

#include "ptx/cluster.cuh"

namespace tcgemm::sm90 {

// The CTAs of a cluster share operands (core/cluster_shape.h), or they add slices of k: then they
// have the same tile, and share nothing. A size is 1, 2, 4 or 8.
struct Cluster {
  std::uint32_t size_m = 1, rank_m = 0;  // of the CTAs with the same columns, which share b
  std::uint32_t size_n = 1, rank_n = 0;  // of the CTAs with the same rows, which share a
  std::uint32_t slices = 1, slice = 0;   // of those that add slices, and this CTA's one
  // The CTA to which this thread of a consumer releases a stage: see set_receiver.
  std::uint32_t receiver = kNobody;

  static constexpr std::uint32_t kNobody = ~0u;

  __device__ unsigned index() const { return ptx::cluster_index(); }  // in the grid
  // The CTAs that share operands.
  __device__ std::uint32_t size() const { return size_m * size_n; }
  // Those that write into the stages of this CTA: of the same columns and of the same rows.
  __device__ std::uint32_t writers() const { return size_m + size_n - 1; }
  // One bit for each CTA that shares a with this one: every size_m-th. And for each that shares b.
  __device__ std::uint16_t mask_a() const {
    std::uint32_t mask = 1 | 1u << size_m;
    mask |= mask << 2 * size_m;
    mask |= mask << 4 * size_m;
    return (mask & ((1u << size()) - 1)) << rank_m;
  }
  __device__ std::uint16_t mask_b() const { return ((1u << size_m) - 1) << rank_n * size_m; }

  // Threads 0, 1, .. of a consumer release to one of the writers each. The consumers call this
  // once: their loops are short, and so is the start of the producer.
  __device__ void set_receiver(std::uint32_t thread) {
    if (thread < size_m) {
      receiver = slice + rank_n * size_m + thread;
    } else if (thread < writers()) {
      const std::uint32_t other = thread - size_m;
      receiver = (other + (other >= rank_n)) * size_m + rank_m;
    }
  }
};

// The rows of a shared tile that each of `size` CTAs loads. A division would cost 200 clocks a
// k-block.
__device__ inline int part_of(int rows, std::uint32_t size) {
  return rows >> ((size >> 1) - (size >> 3));
}

// A kernel without clusters: constants, so that the arithmetic of for_each_tile folds away.
struct SingleCta {
  static constexpr int size_m = 1, rank_m = 0, size_n = 1, rank_n = 0, slice = 0;

  __device__ unsigned index() const { return blockIdx.x; }
};

}  // namespace tcgemm::sm90
