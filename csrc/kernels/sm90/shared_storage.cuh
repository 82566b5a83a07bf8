// The shared memory of a CTA that loads by TMA.
//
//   pipeline stages | smem_d | scales | vectors | exchanged sums | mbarriers
//   | code pairs of a packed weight, or the tiles of a grouped product
#pragma once

#include <cstdint>

#include "catalog.h"
#include "kernels/sm90/cluster.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/uniform.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig>
struct SharedStorage {
  std::uint32_t stages;
  char* smem_d;
  float* scales;
  float* vectors;
  tile::PipelineBarriers<kConfig.stage_groups()> barriers;

  __device__ explicit SharedStorage(char* shared) : stages(ptx::shared_address(shared)) {
    constexpr int kStagesBytes = kConfig.stages * kConfig.stage_bytes();
    smem_d = shared + kStagesBytes;
    scales = reinterpret_cast<float*>(smem_d + kConfig.staging_bytes());
    vectors = scales + kConfig.scale_stages() * kConfig.scale_bytes() / int(sizeof(float));
    barriers.base = stages + kStagesBytes + kConfig.staging_bytes() +
                    kConfig.scale_stages() * kConfig.scale_bytes() + kConfig.vector_bytes() +
                    kConfig.exchange_bytes();
  }

  // Epilogue::shared_vector for the columns of the warpgroup's tile.
  __device__ float* vector_of(int warpgroup) const { return vectors + warpgroup * kConfig.n; }
  // The first stage of a group.
  __device__ std::uint32_t stage(int group) const {
    return stages + group * (kConfig.group_stages() * kConfig.stage_bytes());
  }
  // The same in uniform registers, for descriptors. All lanes have the same stage, but in a loop
  // over k-blocks the compiler does not see that.
  __device__ std::uint32_t uniform_stage(int group) const { return ptx::uniform(stage(group)); }
  // Completes when the terms of b are in the stage: TermWriter.
  __device__ std::uint32_t terms_barrier(int stage) const {
    return barriers.base + 8 * (2 * kConfig.stages + stage);
  }
  // GemmConfig::exchange_bytes
  __device__ std::uint32_t exchange() const { return barriers.base - kConfig.exchange_bytes(); }
  // tile/code_pairs.cuh
  __device__ std::uint32_t code_pairs() const {
    return barriers.base + 16 * kConfig.stage_groups();
  }
  // GemmConfig::ring_bytes
  __device__ std::uint32_t tile_ring() const {
    return (barriers.base + kConfig.barrier_bytes() + 15) / 16 * 16;
  }
  // The scales of a k-block.
  __device__ float* scales_of(int stage) const {
    return scales + stage * (kConfig.scale_bytes() / int(sizeof(float)));
  }
};

// The address of the empty barrier of `stage` in the CTA to which this thread releases; 0: to none.
// A stage is released to the producers of all CTAs that write into it. The barrier counts one
// arrival a consumer warpgroup, because WGMMA reads for all four warps. With mma.sync it counts one
// a warp.
template <GemmConfig kConfig>
__device__ inline std::uint32_t released_barrier(const SharedStorage<kConfig>& shared, int stage,
                                                 const Cluster& cluster) {
  if (cluster.receiver == Cluster::kNobody) return 0;
  return ptx::remote_address(shared.barriers.empty(stage), cluster.receiver);
}

template <GemmConfig kConfig>
__device__ inline void consumer_release(const SharedStorage<kConfig>& shared, int stage,
                                        Cluster cluster) {
  if (const std::uint32_t barrier = released_barrier(shared, stage, cluster); barrier != 0)
    ptx::mbarrier_arrive_remote(barrier);
}

// The same for a loop over stages: it has the address of the barrier of stage `first`, and calls
// release(i) for the i-th stage after it.
template <GemmConfig kConfig>
class Releaser {
 public:
  __device__ Releaser(const SharedStorage<kConfig>& shared, int first, Cluster cluster)
      : barrier_(released_barrier(shared, first, cluster)) {}
  __device__ void operator()(int stage) const {
    if (barrier_ != 0) ptx::mbarrier_arrive_remote(barrier_ + 8 * stage);
  }

 private:
  std::uint32_t barrier_;
};

}  // namespace tcgemm::sm90
