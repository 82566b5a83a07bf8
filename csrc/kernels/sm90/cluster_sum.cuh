// The sum of the slices of k that the CTAs of a cluster have computed, through distributed shared
// memory. Each CTA adds the sums of some warps, and stores their rows of the tile.
// docs/dev/kernels/few-rows.md has the other ways that were measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "catalog.h"
#include "kernels/sm90/shared_storage.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"

namespace tcgemm::sm90 {

// The warps of a tile are divided between the CTAs of the cluster: CTA r owns adjacent ones. Every
// other warp writes its accumulators to shared memory, and one bulk copy sends them to the owner of
// that warp. No CTA has another tile, so the pipeline stages have space for both:
//
//   received: the first owned warp, from slice 0, 1, .. but for its own | the next owned warp | ..
//   to send:  the first other warp | the second one | ..
//
//   one warp: vector 0 of 32 lanes, vector 1, ..     a vector has four registers of a lane
//
// The staging buffer of a warp has the barrier on which it awaits its slices.
template <GemmConfig kConfig>
struct ClusterSum {
  static constexpr int kWarps = kConfig.row_groups() * 4;
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

  // Returns true in the warps that belong to this CTA, whose accumulators then have the sum. These
  // call end() after their epilogue. Slices are added in order.
  template <class Register, int kBlocks, int kRegisters>
  __device__ static bool add(const SharedStorage<kConfig>& shared, Cluster cluster, int warpgroup,
                             Register (&accumulators)[kBlocks][kRegisters]) {
    static_assert(sizeof(Register) == 4 && kRegisters % 4 == 0);
    static_assert(kBlocks * kRegisters * 128 == kWarpBytes);
    const int warp = warp_of(warpgroup), lane = threadIdx.x % 32;
    const int slices = cluster.slices, slice = cluster.slice;
    const int owner = warp * slices / kWarps, others = slices - 1;
    const int first_own = first_warp(slice, slices);
    const int own_warps = first_warp(slice + 1, slices) - first_own;
    const std::uint32_t signal = barrier(shared, warp);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) ptx::wgmma_results(accumulators[i]);
    // The other warps of the CTA have read the stages.
    ptx::named_barrier_sync(kRead, kWarps * 32);
    if (owner != slice) {
      const int index = warp < first_own ? warp : warp - own_warps;
      const std::uint32_t from = shared.stages + (own_warps * others + index) * kWarpBytes;
      const auto write = [&](int vector, Register* registers) {
        ptx::store_shared_vector(from + vector * kVectorBytes + lane * 16,
                                 tile::vector_of(registers));
      };
      visit_vectors<0, kWarpBytes / kVectorBytes>(accumulators, write);
      ptx::fence_proxy_async();
      ptx::cluster_wait();  // for the owner's stages and barrier
      __syncwarp();
      if (lane == 0) {
        const int place = (warp - first_warp(owner, slices)) * others + slice - (slice > owner);
        ptx::bulk_send(ptx::remote_address(shared.stages + place * kWarpBytes, owner), from,
                       ptx::remote_address(signal, owner), kWarpBytes);
      }
      __syncwarp();
      // The copy reads this CTA's memory until the owner has received all.
      ptx::cluster_arrive_relaxed();
      ptx::cluster_wait();
      return false;
    }
    ptx::cluster_wait();
    if (lane == 0) ptx::mbarrier_arrive_expect(signal, others * kWarpBytes);
    ptx::mbarrier_wait(signal, 0);
    __syncwarp();
    ptx::cluster_arrive_relaxed();
    add_received(shared.stages + (warp - first_own) * others * kWarpBytes + lane * 16, slice,
                 others, accumulators);
    // The epilogue writes to the staging buffer.
    __syncwarp();
    if (lane == 0) ptx::mbarrier_invalidate(signal);
    __syncwarp();
    return true;
  }

  __device__ static void end() { ptx::cluster_wait(); }

 private:
  static constexpr int kVectorBytes = 32 * 16;
  static constexpr int kRead = 11;  // a named barrier, after those of tile/tma_store_columns.cuh

  __device__ static int warp_of(int warpgroup) {
    return warpgroup * 4 + static_cast<int>(threadIdx.x / 32 % 4);
  }
  // The first warp of a tile that belongs to CTA `rank`.
  __device__ static int first_warp(int rank, int slices) {
    return (rank * kWarps + slices - 1) / slices;
  }
  __device__ static std::uint32_t barrier(const SharedStorage<kConfig>& shared, int warp) {
    return ptx::shared_address(shared.smem_d) + warp * kStagingBytes;
  }

  // accumulators: those of slice `own`, and the sum of all after the return. `from`: the lane's
  // first vector of the others.
  template <class Register, int kBlocks, int kRegisters>
  __device__ static void add_received(std::uint32_t from, int own, int others,
                                      Register (&accumulators)[kBlocks][kRegisters]) {
    constexpr int kVectors = kWarpBytes / kVectorBytes, kAtOnce = 8;
    const auto add_vectors = [&]<int kFirst>() {
      constexpr int kCount = std::min(kAtOnce, kVectors - kFirst);
      Register sums[kCount * 4];
#pragma unroll
      for (Register& sum : sums) sum = std::is_floating_point_v<Register> ? Register(-0.0f) : 0;
      const auto add_slices = [&](int first, int last) {
#pragma unroll 1
        for (int slice = first; slice < last; ++slice)
#pragma unroll
          for (int i = 0; i < kCount; ++i)
            tile::add_vector(&sums[4 * i], ptx::load_shared_vector(from + slice * kWarpBytes +
                                                                   (kFirst + i) * kVectorBytes));
      };
      add_slices(0, own);
      visit_vectors<kFirst, kCount>(accumulators, [&](int i, Register* registers) {
        tile::add_vector(&sums[4 * (i - kFirst)], tile::vector_of(registers));
      });
      add_slices(own, others);
      visit_vectors<kFirst, kCount>(accumulators, [&](int i, Register* registers) {
        tile::set_vector(registers, tile::vector_of(&sums[4 * (i - kFirst)]));
      });
    };
    [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
      (add_vectors.template operator()<kIndex * kAtOnce>(), ...);
    }(std::make_integer_sequence<int, (kVectors + kAtOnce - 1) / kAtOnce>());
  }

  // Calls visit(index, registers) for kCount vectors of the warp, from kFirst on.
  template <int kFirst, int kCount, class Register, int kBlocks, int kRegisters, class Visit>
  __device__ static void visit_vectors(Register (&accumulators)[kBlocks][kRegisters],
                                       const Visit& visit) {
    constexpr int kInBlock = kRegisters / 4;
#pragma unroll
    for (int i = kFirst; i < kFirst + kCount; ++i)
      visit(i, &accumulators[i / kInBlock][i % kInBlock * 4]);
  }
};

}  // namespace tcgemm::sm90
