// The sum of the slices of k that the CTAs of a cluster have computed, through distributed shared
// memory. Each CTA adds the sums of some warps, and stores their rows of the tile.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "kernels/sm90/shared_storage.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"

namespace tcgemm::sm90 {

// The warps of a tile are divided between the CTAs of the cluster. Every CTA stores the
// accumulators of a warp into the pipeline stages of the CTA to which the warp belongs:
//
//   one warp, slice 0: vector 0 of 32 lanes, vector 1, ..  |  slice 1: ..  |  another warp: ..
//
// A vector has four registers of a lane. No CTA has another tile, so the stages are free, and so
// are the staging buffers: the one of a warp has the barrier on which the warp awaits its slices.
template <GemmConfig kConfig>
struct ClusterSum {
  static constexpr unsigned kWarps = kConfig.row_groups() * 4;
  static constexpr int kWarpBytes = kConfig.slice_bytes() / kWarps;

  // Each consumer warp calls this after its mainloop, and add() later. Other warps of the CTA that
  // read the stages end meanwhile.
  __device__ static void begin(const SharedStorage<kConfig>& shared, int warpgroup) {
    if (threadIdx.x % 32 == 0) {
      ptx::mbarrier_init(barrier(shared, warp_of(warpgroup)), 1);
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    // A release would wait for all memory (MEMBAR.ALL.GPU). The CTA has read its stages, and has
    // written nothing that another one reads.
    ptx::cluster_arrive_relaxed();
  }

  // Returns true in the warps that belong to this CTA, whose accumulators then have the sum. Slices
  // are added in order.
  template <class Register, int kBlocks, int kRegisters>
  __device__ static bool add(const SharedStorage<kConfig>& shared, Cluster cluster, int warpgroup,
                             Register (&accumulators)[kBlocks][kRegisters]) {
    static_assert(sizeof(Register) == 4 && kRegisters % 4 == 0);
    static_assert(kBlocks * kRegisters * 128 == kWarpBytes);
    const unsigned warp = warp_of(warpgroup), lane = threadIdx.x % 32;
    // The rests of the warps of a CTA differ by the number of slices, at least by two.
    const unsigned owner = warp * cluster.slices / kWarps, rest = warp * cluster.slices % kWarps;
    const std::uint32_t place = shared.stages + rest / 2 * cluster.slices * kWarpBytes + lane * 16;
    ptx::cluster_wait();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) ptx::wgmma_results(accumulators[i]);
    const std::uint32_t signal = ptx::remote_address(barrier(shared, warp), owner);
    std::uint32_t to = ptx::remote_address(place + cluster.slice * kWarpBytes, owner);
    visit_vectors(accumulators, [&](const Register* vector) {
      ptx::store_async(to, signal, tile::vector_of(vector));
      to += kVectorBytes;
    });
    if (owner != cluster.slice) return false;
    if (lane == 0) ptx::mbarrier_arrive_expect(barrier(shared, warp), cluster.slices * kWarpBytes);
    ptx::mbarrier_wait(barrier(shared, warp), 0);
    std::uint32_t from = place;
    visit_vectors(accumulators, [&](Register* vector) {
      tile::set_vector(vector, ptx::load_shared_vector(from));
      from += kVectorBytes;
    });
#pragma unroll 1
    for (std::uint32_t slice = 1; slice < cluster.slices; ++slice)
      visit_vectors(accumulators, [&](Register* vector) {
        tile::add_vector(vector, ptx::load_shared_vector(from));
        from += kVectorBytes;
      });
    // The epilogue writes to the staging buffer.
    __syncwarp();
    if (lane == 0) ptx::mbarrier_invalidate(barrier(shared, warp));
    __syncwarp();
    return true;
  }

 private:
  static constexpr int kVectorBytes = 32 * 16;

  __device__ static unsigned warp_of(int warpgroup) { return warpgroup * 4 + threadIdx.x / 32 % 4; }
  __device__ static std::uint32_t barrier(const SharedStorage<kConfig>& shared, unsigned warp) {
    return ptx::shared_address(shared.smem_d) + warp * kStagingBytes;
  }

  template <class Register, int kBlocks, int kRegisters, class Visit>
  __device__ static void visit_vectors(Register (&accumulators)[kBlocks][kRegisters],
                                       const Visit& visit) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < kRegisters; j += 4) visit(&accumulators[i][j]);
  }
};

}  // namespace tcgemm::sm90
