// The sum of the slices of k that the CTAs of a cluster have computed, through distributed shared
// memory. The first CTA adds them, and applies the epilogue.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "kernels/sm90/shared_storage.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"

namespace tcgemm::sm90 {

// Every other CTA stores its accumulators into the pipeline stages of the first one:
//
//   slice 1: vector 0 of all threads, vector 1 of all threads, ..  |  slice 2: ..
//
// A vector has four registers of a thread. No CTA has another tile: the stages are free.
template <GemmConfig kConfig>
struct ClusterSum {
  static constexpr int kThreads = kConfig.row_groups() * 128;
  static constexpr int kRowBytes = kThreads * 16;
  static constexpr int kSliceBytes = kConfig.slice_bytes();

  // All consumer threads of the cluster call this after their mainloop. Returns true in the first
  // CTA, whose accumulators then have the sum.
  template <class Register, int kBlocks, int kRegisters>
  __device__ static bool add(const SharedStorage<kConfig>& shared, Cluster cluster, int warpgroup,
                             Register (&accumulators)[kBlocks][kRegisters]) {
    static_assert(sizeof(Register) == 4 && kRegisters % 4 == 0);
    static_assert(kBlocks * kRegisters * 4 * kThreads == kSliceBytes);
    const std::uint32_t place =
        shared.stages + (warpgroup * 128 + static_cast<int>(threadIdx.x) % 128) * 16;
    // The mainloop of the first CTA has read its last stage.
    ptx::cluster_arrive();
    ptx::cluster_wait();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) ptx::wgmma_results(accumulators[i]);
    if (cluster.slice != 0) {
      std::uint32_t to = place + (cluster.slice - 1) * kSliceBytes;
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < kRegisters; j += 4, to += kRowBytes)
          ptx::store_remote(to, 0, tile::vector_of(&accumulators[i][j]));
      ptx::cluster_arrive();
      return false;
    }
    ptx::cluster_arrive();
    ptx::cluster_wait();
    std::uint32_t from = place;
#pragma unroll 1
    for (std::uint32_t slice = 1; slice < cluster.slices; ++slice) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < kRegisters; j += 4, from += kRowBytes)
          tile::add_vector(&accumulators[i][j], ptx::load_shared_vector(from));
    }
    return true;
  }
};

}  // namespace tcgemm::sm90
