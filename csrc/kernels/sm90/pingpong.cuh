// Ping-pong: both consumer warpgroups wait on the same full barriers. Without an order they promote
// at the same time, and the tensor cores idle. Two named barriers let one warpgroup issue WGMMA
// while the other promotes.
#pragma once

#include "catalog.h"
#include "ptx/named_barrier.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig>
struct PingPong {
  static_assert(kConfig.warpgroups <= 2);

  // Called once, before the first tile: lets warpgroup 0 go first.
  __device__ static void begin(int warpgroup) {
    if (warpgroup == 1) arrive(warpgroup);
  }
  // Waits until the other warpgroup has called arrive().
  __device__ static void wait(int warpgroup) {
    if constexpr (kConfig.warpgroups == 2) ptx::named_barrier_sync(1 + warpgroup, 256);
  }
  __device__ static void arrive(int warpgroup) {
    if constexpr (kConfig.warpgroups == 2) ptx::named_barrier_arrive(2 - warpgroup, 256);
  }
};

}  // namespace tcgemm::sm90
