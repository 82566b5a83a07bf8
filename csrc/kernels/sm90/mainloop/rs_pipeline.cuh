// The mainloop of products that read some operand from registers, of which there are two sets, a
// k-block each: a group in flight reads one while the other is filled. While the tensor cores work,
// the group before has finished, its stage goes back, and its registers take the next block:
//
//   wgmma even 0 | wait for odd -1, load odd 1 | wgmma odd 1 | wait for even 0, load even 2 | ..
#pragma once

#include <cstdint>

#include "catalog.h"
#include "kernels/sm90/producer.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

namespace tcgemm::sm90 {

// load(stage, set) fills a set from a stage in shared memory, issue(stage, set, accumulate) issues
// the products of one.
template <GemmConfig kConfig, class Buffer, class PipelineState, class Accumulators, class Load,
          class Issue>
__device__ inline void rs_pipeline(const SharedStorage<kConfig>& shared, PipelineState& state,
                                   int k_blocks, Cluster cluster, Accumulators& accumulators,
                                   const Load& load, const Issue& issue) {
  const auto fill = [&](Buffer& set) {
    ptx::mbarrier_wait(shared.barriers.full(state.stage), state.parity);
    load(shared.stage(state.stage), set);
  };

  // Multiplies by what `current` holds, and fills `next` under it. False: that was the last block.
  // Its group ends here: where two ways out meet, the compiler may copy accumulators in flight.
  int k_block = 0, previous = 0;
  const auto multiply_k_block = [&](Buffer& current, Buffer& next) {
    ptx::wgmma_fence();
    issue(shared.stage(state.stage), current, k_block != 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (k_block != 0) consumer_release<kConfig>(shared, previous, cluster);
    previous = state.stage;
    state.advance();
    if (++k_block < k_blocks) {
      fill(next);
      return true;
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_results(accumulators);
    consumer_release<kConfig>(shared, previous, cluster);
    return false;
  };

  Buffer even, odd;
  fill(even);
#pragma unroll 1
  while (multiply_k_block(even, odd) && multiply_k_block(odd, even)) {
  }
}

}  // namespace tcgemm::sm90
