// Clusters of blocks (PTX ISA 9.7.13.4 barrier.cluster) and the sizes a kernel can read.
#pragma once

#include <cstdint>

namespace tcgemm::ptx {

__device__ inline std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline std::uint32_t cluster_size() {
  std::uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// Orders mbarrier.init before any arrival from a peer: fence_mbarrier_init() first, then this. The
// relaxed arrival saves the MEMBAR.ALL.GPU of .release.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace tcgemm::ptx
