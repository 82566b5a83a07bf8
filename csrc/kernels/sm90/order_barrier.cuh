// The order of two consumer warpgroups: one waits until the other has arrived.
#pragma once

#include "catalog.h"
#include "ptx/named_barrier.cuh"

namespace tcgemm::sm90 {

//   promoted sums, split FP32   One warpgroup issues WGMMA while the other adds. Without an order
//                               both add at the same time, and the tensor cores idle.
//   pingpong                    One warpgroup is in its mainloop, the other in its epilogue. A
//                               warpgroup must not wait for a stage before the other has seen the
//                               last stages of its tile: the parity of an mbarrier tells two
//                               adjacent phases apart, and no more.
template <GemmConfig kConfig>
struct OrderBarrier {
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
