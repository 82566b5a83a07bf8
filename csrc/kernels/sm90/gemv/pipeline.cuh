// The pipeline of a warp of a GEMV kernel: its blocks of k, through stages of its own.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "ptx/cp_async.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::sm90 {

// A stage has b, and then a. begin() runs once, while the first loads are in flight.
// multiply(stage, block) multiplies a block. kExchanges: lanes read what other lanes have copied.
template <GemmConfig kConfig, bool kExchanges, class LoaderA, class LoaderB, class Begin,
          class Multiply>
__device__ __forceinline__ void gemv_pipeline(const CpAsyncParams& params, std::uint32_t memory,
                                              int rank, const LoaderA& a, const LoaderB& b,
                                              const Begin& begin, const Multiply& multiply) {
  constexpr int kWarps = kConfig.warpgroups * 4, kStages = kConfig.stages;
  constexpr int kStageBytes = LoaderA::kBytes + LoaderB::kBytes;
  static_assert(kWarps * kStageBytes == kConfig.stage_bytes());
  constexpr int kStep = kWarps * kConfig.gemv_cluster();  // blocks from one of a warp to its next
  constexpr int kDepth = LoaderA::kDepth;
  const int warp = threadIdx.x / 32;
  const std::uint32_t stages = memory + warp * kStages * kStageBytes;
  const int blocks = params.extent.k / kDepth + (params.extent.k % kDepth != 0);
  const int first = rank * kWarps + warp;
  const bool ahead = params.constant == ConstantOperand::b;
  const auto fill = [&](bool load_a, bool load_b) {
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      const int block = first + stage * kStep;
      const std::uint32_t to = stages + stage * kStageBytes;
      if (load_b && block < blocks) b.load(to, block);
      if (load_a && block < blocks) a.load(to + LoaderB::kBytes, block);
      if (load_a) ptx::cp_async_commit();
    }
  };
  if (ahead) fill(false, true);
  ptx::wait_for_prerequisites();
  ptx::launch_dependents();
  fill(true, !ahead);
  begin();
  std::uint32_t stage = stages;
#pragma unroll 1
  for (int block = first; block < blocks; block += kStep) {
    ptx::cp_async_wait<kStages - 1>();
    if constexpr (kExchanges) __syncwarp();
    multiply(stage, block);
    if constexpr (kExchanges) __syncwarp();
    if (const int next = block + kStages * kStep; next < blocks) {
      b.load(stage, next);
      a.load(stage + LoaderB::kBytes, next);
    }
    ptx::cp_async_commit();
    stage += kStageBytes;
    if (stage == stages + kStages * kStageBytes) stage = stages;
  }
  ptx::cp_async_wait<0>();
}

}  // namespace tcgemm::sm90
