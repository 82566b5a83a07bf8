// The pipeline of shared-memory stages between the producer warp and the consumer warpgroups. Each
// stage has two mbarriers: `full` completes when the stage's bytes are in shared memory, `empty`
// when every consumer has finished reading them. Where stages share mbarriers (StageGroups), the
// states and barriers below are those of groups.
#pragma once

#include <cstdint>

#include "ptx/mbarrier.cuh"
#include "ptx/uniform.cuh"

namespace tcgemm::tile {

// The current stage and its mbarrier phase parity, which changes each time the stages wrap around.
// A consumer waits on `full` with `parity`. The producer waits on `empty` with parity ^ 1: the
// barrier counts that phase as complete at the start, so the first waits return at once.
template <int kStages>
struct PipelineState {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ std::uint32_t phase() const { return parity; }
  // A tile begins at the stage after the last stage of the tile before.
  __device__ void begin_tile() {}
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  // The same state, of which the compiler knows that it is the same in all lanes.
  __device__ PipelineState uniform() const {
    return {ptx::uniform(stage), static_cast<std::uint32_t>(ptx::uniform(parity))};
  }
  // Skips `count` stages, which another warpgroup reads.
  __device__ void advance(int count) {
    const int next = stage + count;
    stage = next % kStages;
    parity ^= next / kStages & 1;
  }
};

// The same where every tile begins at stage 0, for a loop that is unrolled over the stages. Bit i
// of `parities` is the parity of stage i.
template <int kStages>
struct UnrolledState {
  int stage = 0;
  std::uint32_t parities = 0;

  __device__ std::uint32_t phase() const { return parities >> stage & 1; }
  __device__ void begin_tile() { stage = 0; }
  __device__ void advance() {
    parities ^= 1u << stage;
    if (++stage == kStages) stage = 0;
  }
  __device__ UnrolledState uniform() const {
    return {0, static_cast<std::uint32_t>(ptx::uniform(int(parities)))};
  }
  // Skips the `count` blocks of a tile.
  __device__ void advance(int count) {
    parities ^= -(count / kStages & 1u) ^ ((1u << count % kStages) - 1);
  }
};

// Walks over the k-blocks of a tile in groups of kStages. The first group has the remainder, so
// that the loop after it has whole groups.
template <int kStages>
struct StageGroups {
  int k_block, size;  // the first k-block of the group, and its number of k-blocks

  __device__ static int count(int k_blocks) { return (k_blocks + kStages - 1) / kStages; }
  __device__ static int first_size(int k_blocks) { return (k_blocks - 1) % kStages + 1; }
  __device__ StageGroups(int first, int k_blocks) : k_block(first), size(first_size(k_blocks)) {}
  __device__ void advance() {
    k_block += size;
    size = kStages;
  }
};

template <int kStages>
struct PipelineBarriers {
  std::uint32_t base;  // shared address of full[kStages], empty[kStages]

  __device__ std::uint32_t full(int stage) const { return base + 8 * stage; }
  __device__ std::uint32_t empty(int stage) const { return base + 8 * (kStages + stage); }

  // Waits until the stage is empty: the producer may then fill it.
  template <class State>
  __device__ void producer_acquire(const State& state) const {
    ptx::mbarrier_wait(empty(state.stage), state.phase() ^ 1);
  }
  // Waits until the stage is full: consumers may then read it.
  template <class State>
  __device__ void consumer_wait(const State& state) const {
    ptx::mbarrier_wait(full(state.stage), state.phase());
  }

  // One thread calls it. `full` completes after `writers` arrivals and their transaction bytes,
  // `empty` after `readers` arrivals. With a stage for each lane a kernel starts about 1 us later.
  __device__ void initialise(int writers, int readers) const {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(full(stage), writers);
      ptx::mbarrier_init(empty(stage), readers);
    }
  }
};

}  // namespace tcgemm::tile
