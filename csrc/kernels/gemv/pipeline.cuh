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

  LoaderA& a;
  LoaderB& b;
  std::uint32_t stages;
  int first, blocks;

  __device__ GemvPipeline(const CpAsyncParams& params, std::uint32_t memory, int rank,
                          LoaderA& loader_a, LoaderB& loader_b)
      : a(loader_a), b(loader_b) {
    const int warp = ptx::uniform(threadIdx.x / 32);
    stages = memory + warp * kStages * kStageBytes;
    blocks = params.extent.k / kDepth + (params.extent.k % kDepth != 0);
    first = rank * kWarps + warp;
  }

  // Starts to fill the stages. b may be loaded while the kernel before this one runs. prepare()
  // reads b as well, and runs while the first blocks come.
  template <class Prepare>
  __device__ __forceinline__ void begin(const CpAsyncParams& params, const Prepare& prepare) const {
    const bool ahead = params.constant == ConstantOperand::b;
    if (ahead) {
      fill(false, true);
      prepare();
    }
    ptx::wait_for_prerequisites();
    ptx::launch_dependents();
    fill(true, !ahead);
    if (!ahead) prepare();
  }

  // multiply(stage) multiplies the block in a stage.
  template <class Multiply>
  __device__ __forceinline__ void run(const Multiply& multiply) const {
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
  __device__ __forceinline__ void fill(bool load_a, bool load_b) const {
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      const int block = first + stage * kStep;
      const std::uint32_t to = stages + stage * kStageBytes;
      if (load_b && block < blocks) b.load(to, block);
      if (load_a && block < blocks) a.load(to + LoaderB::kBytes, block);
      if (load_a) ptx::cp_async_commit();
    }
  }
};

}  // namespace tcgemm::gemv
