// Two warpgroups that add up their partial sums at the same time leave the tensor cores idle, and
// left alone they fall into step, since both wait for the same stages. So they take turns at the
// tensor cores: while one multiplies, the other adds.
#pragma once

#include "catalog.h"
#include "ptx/named_barrier.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig>
struct PingPong {
  static_assert(kConfig.warpgroups <= 2);

  // Once, before the first tile: the first turn is the first warpgroup's.
  __device__ static void begin(int warpgroup) {
    if (warpgroup == 1) arrive(warpgroup);
  }
  __device__ static void wait(int warpgroup) {
    if constexpr (kConfig.warpgroups == 2) ptx::named_barrier_sync(1 + warpgroup, 256);
  }
  __device__ static void arrive(int warpgroup) {
    if constexpr (kConfig.warpgroups == 2) ptx::named_barrier_arrive(2 - warpgroup, 256);
  }
};

}  // namespace tcgemm::sm90
