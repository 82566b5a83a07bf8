// The position of a CTA in its cluster, for kernels that are launched with clusters and for those
// that are not.
#pragma once

#include <cstdint>

#include "ptx/cluster.cuh"

namespace tcgemm::sm90 {

// The CTAs of a cluster share b: then they have adjacent rows. Or they add slices of k: then they
// have the same tile, and share nothing.
struct Cluster {
  std::uint32_t size, rank;             // of those that share b; size: 1, 2 or 4
  std::uint32_t slices = 1, slice = 0;  // of those that add slices, and this CTA's one

  __device__ unsigned index() const { return ptx::cluster_index(); }  // in the grid
  // The rows of a shared tile that this CTA loads. A division would cost 200 clocks a k-block.
  __device__ int part_of(int rows) const { return rows >> (size >> 1); }
  // One bit for each CTA.
  __device__ std::uint16_t mask() const { return (1u << size) - 1; }
};

// A kernel without clusters: constants, so that the arithmetic of for_each_tile folds away.
struct SingleCta {
  static constexpr int size = 1, rank = 0, slice = 0;

  __device__ unsigned index() const { return blockIdx.x; }
};

}  // namespace tcgemm::sm90
