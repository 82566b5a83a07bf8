// The pipeline of mainloops that load an operand, or metadata, into registers. Registers are double
// buffered: the WGMMA group in flight reads one buffer while the next k-block is loaded into the
// other.
#pragma once

#include "catalog.h"
#include "kernels/sm90/producer.cuh"
#include "ptx/wgmma.cuh"

namespace tcgemm::sm90 {

// While a group runs, the previous one has completed: its stage is released and its buffer
// refilled.
//
//   wgmma even 0 | wait for odd -1, load odd 1 | wgmma odd 1 | wait for even 0, load even 2 | ..
//
// load(stage, buffer) fills a buffer from a stage in shared memory. issue(stage, buffer,
// accumulate) issues the WGMMAs of one k-block.
template <GemmConfig kConfig, class Buffer, class PipelineState, class Accumulators, class Load,
          class Issue>
__device__ inline void rs_pipeline(const SharedStorage<kConfig>& shared, PipelineState state,
                                   int k_blocks, Cluster cluster, Accumulators& accumulators,
                                   const Load& load, const Issue& issue) {
  const auto fill = [&](Buffer& buffer) {
    shared.barriers.consumer_wait(state);
    load(shared.stage(state.stage), buffer);
  };

  // Multiplies `current`, and fills `next` meanwhile. Returns false after the last k-block. That
  // one's group completes here: where two exits join, the compiler may copy accumulators in flight.
  int k_block = 0, previous = 0;
  const auto multiply_k_block = [&](Buffer& current, Buffer& next) {
    ptx::wgmma_fence();
    issue(shared.uniform_stage(state.stage), current, k_block != 0);
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
