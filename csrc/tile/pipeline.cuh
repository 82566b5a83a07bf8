// The ring of shared-memory stages between the warp that loads and the warpgroups that compute.
// Each stage has two barriers: `full` (its bytes have landed) and `empty` (every reader is done
// with it).
#pragma once

#include <cstdint>

#include "ptx/mbarrier.cuh"

namespace tcgemm::tile {

// A position in the ring. The parity flips with every turn; a reader waits on `full` with `parity`,
// the writer on `empty` with parity ^ 1, so that its first turn falls through.
template <int kStages>
struct PipelineState {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <int kStages>
struct PipelineBarriers {
  std::uint32_t base;  // shared address of full[kStages], empty[kStages]

  __device__ std::uint32_t full(int stage) const { return base + 8 * stage; }
  __device__ std::uint32_t empty(int stage) const { return base + 8 * (kStages + stage); }

  // One thread; a stage is full after `writers` arrivals and their bytes, empty after `readers`.
  __device__ void initialise(int writers, int readers) const {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(full(stage), writers);
      ptx::mbarrier_init(empty(stage), readers);
    }
  }
};

}  // namespace tcgemm::tile
