// The pipeline of a warp of a GEMV kernel: its blocks of k, through stages of its own.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "ptx/cp_async.cuh"
#include "ptx/dependent.cuh"
#include "ptx/uniform.cuh"

namespace tcgemm::gemv {

// A stage has b, and then a. A loader gets the blocks of the warp in ascending order. kExchanges:
// lanes read what other lanes have copied.
template <GemmConfig kConfig, bool kExchanges, class LoaderA, class LoaderB>
struct GemvPipeline {
  static constexpr int kWarps = kConfig.warpgroups * 4, kStages = kConfig.stages;
  static constexpr int kStageBytes = LoaderA::kBytes + LoaderB::kBytes;
  static_assert(kWarps * kStageBytes == kConfig.stage_bytes());
  static constexpr int kStep = kWarps * kConfig.gemv_cluster();  // blocks from one to the next
  static constexpr int kDepth = LoaderA::kDepth;
  // The stages that get a constant b before the wait for the kernel before. cp.async completes in
  // order, so the first block waits for all of them. That is no loss where the CTA begins beside
  // others that still multiply.
  static constexpr int kAhead =
      kConfig.has_packed_weight() && kConfig.least_ctas() == 1 ? 1 : kStages;

  LoaderB& b;
  std::uint32_t stages;
  int first, blocks;

  __device__ GemvPipeline(const CpAsyncParams& params, std::uint32_t memory, int rank,
                          LoaderB& loader_b)
      : b(loader_b) {
    const int warp = ptx::uniform(threadIdx.x / 32);
    stages = memory + warp * kStages * kStageBytes;
    blocks = params.extent.k / kDepth + (params.extent.k % kDepth != 0);
    first = rank * kWarps + warp;
  }

  // Starts to fill the stages, and returns the loader of a, which make_a() makes. b may be loaded
  // while the kernel before this one runs. prepare() reads b as well, and runs while the first
  // blocks come. The loops are short: at the start of a kernel no instruction is in the cache.
  template <class MakeA, class Prepare>
  __device__ __forceinline__ LoaderA begin(const CpAsyncParams& params, const MakeA& make_a,
                                           const Prepare& prepare) const {
    const bool ahead = params.constant == ConstantOperand::b;
    if (ahead) {
      fill(kAhead, [&](int, std::uint32_t to, int block) {
        if (block < blocks) b.load(to, block);
      });
      prepare();
    }
    ptx::wait_for_prerequisites();
    ptx::launch_dependents();
    LoaderA a = make_a();
    fill(kStages, [&](int stage, std::uint32_t to, int block) {
      if (block < blocks) {
        if (!ahead || stage >= kAhead) b.load(to, block);
        a.load(to + LoaderB::kBytes, block);
      }
      ptx::cp_async_commit();
    });
    if (!ahead) prepare();
    return a;
  }

  // multiply(stage) multiplies the block in a stage.
  template <class Multiply>
  __device__ __forceinline__ void run(LoaderA& a, const Multiply& multiply) const {
    std::uint32_t stage = stages;
#pragma unroll 1
    for (int block = first; block < blocks; block += kStep) {
      ptx::cp_async_wait<kStages - 1>();
      if constexpr (kExchanges) __syncwarp();
      multiply(stage);
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

 private:
  // Calls load(stage, its shared address, its first block) for the first `count` stages.
  template <class Load>
  __device__ __forceinline__ void fill(int count, const Load& load) const {
    std::uint32_t to = stages;
    int block = first;
#pragma unroll 1
    for (int stage = 0; stage < count; ++stage, to += kStageBytes, block += kStep)
      load(stage, to, block);
  }
};

}  // namespace tcgemm::gemv
