// The mainloop that accumulates in f64: a producer warpgroup fills the pipeline stages with
// cp.async, the consumer warpgroups issue mma.sync. docs/dev/kernels/sm90-fp64.md says what limits
// it.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "isa/mma_instructions.h"
#include "ptx/convert.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma_f64.cuh"
#include "ptx/shared.cuh"
#include "tile/fp64_producer.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The content of a stage, and the part of each warp:
//
//   stage:  a: tile_m x 128 bytes of k | b: tile_n x 128 bytes of k             (producer.cuh)
//   tile:   a warp owns 32 rows, or 16; warps that share rows split the columns
//
// A stage is one mma deep for f64 and two for f32. Consumers convert f32 to f64, which is exact,
// between shared memory and registers. Fragments of b are loaded one block of 8 columns ahead,
// fragments of a one step of k ahead. No barrier stops all warps: each waits for the stage that it
// reads next, and releases a stage by itself.
template <GemmConfig kConfig>
struct Fp64Mainloop {
  static_assert(kConfig.mainloop == Mainloop::fp64 && kConfig.accumulator == DType::f64);
  static_assert(kConfig.input == DType::f64 || kConfig.input == DType::f32);
  // The instruction for the operands as they are in registers.
  static constexpr const isa::Instruction* kInstruction =
      isa::find(isa::InstructionKind::mma, DType::f64, DType::f64, DType::f64);
  static constexpr int kStepDepth = kInstruction->k, kSteps = kConfig.tile_k() / kStepDepth;
  static_assert(kSteps * kStepDepth == kConfig.tile_k() && kSteps <= 2);

  static constexpr int kWarps = 4 * kConfig.warpgroups;
  // Per product a warp reads (rows + columns) / (rows * columns) elements from shared memory: 32
  // rows, unless fewer than 24 columns remain. Among f32 operands ptxas converts the fragments of a
  // between the last mma of a step and the first of the next one. With 16 rows this gap is half as
  // long. Otherwise a second warpgroup has to fill it.
  static constexpr int warp_rows() {
    const int columns = kConfig.tile_m() * kConfig.tile_n() / kWarps / 32;
    const bool few_warps = kConfig.input == DType::f32 && kConfig.warpgroups == 1;
    return few_warps || columns < 24 || columns % 8 != 0 ? 16 : 32;
  }
  static constexpr int kWarpM = warp_rows();
  static constexpr int kWarpsM = kConfig.tile_m() / kWarpM, kWarpsN = kWarps / kWarpsM;
  static constexpr int kWarpN = kConfig.tile_n() / kWarpsN;
  static_assert(kWarpsM * kWarpsN == kWarps && kWarpN * kWarpsN == kConfig.tile_n());
  static constexpr int kFragments = kWarpM / 16, kBlocks = kWarpN / 8;
  static_assert(kWarpN % 8 == 0 && kBlocks > kFragments);

  static constexpr Major kMajorA = major_a(kConfig.layout), kMajorB = major_b(kConfig.layout);
  using LayoutA = tile::Fp64SmemLayout<kConfig.input, kMajorA, kConfig.tile_m()>;
  using LayoutB = tile::Fp64SmemLayout<kConfig.input, kMajorB, kConfig.tile_n()>;
  using ProducerA = tile::Fp64Producer<kConfig.input, kMajorA, kConfig.tile_m()>;
  using ProducerB = tile::Fp64Producer<kConfig.input, kMajorB, kConfig.tile_n()>;
  static_assert(LayoutA::kDepth == kConfig.tile_k());
  static_assert(LayoutA::kBytes + LayoutB::kBytes <= kConfig.stage_bytes());

  using PipelineState = tile::PipelineState<kConfig.stages>;
  using PipelineBarriers = tile::PipelineBarriers<kConfig.stages>;
  using Accumulators = double[kFragments][4 * kBlocks];
  static constexpr int kWriters = 128, kReaders = kWarps;

  // Fragments of two steps of a, and of two blocks of 8 columns of b.
  struct Fragments {
    double a[2][kFragments][8];
    double b[2][4];
  };

  // Origin of the warp in the tile; `warp` counts consumer warps.
  __device__ static int warp_row(int warp) { return warp % kWarpsM * kWarpM; }
  __device__ static int warp_col(int warp) { return warp / kWarpsM * kWarpN; }

  struct SharedStorage {
    std::uint32_t stages;
    PipelineBarriers barriers;
    std::uint32_t lane_a, lane_b;  // offsets of this lane's first elements in a stage

    __device__ std::uint32_t stage(int index) const {
      return stages + index * kConfig.stage_bytes();
    }
  };

  __device__ static double load_element(std::uint32_t address) {
    if constexpr (kConfig.input == DType::f64) {
      return ptx::load_shared_f64(address);
    } else {
      static_assert(kConfig.input == DType::f32);
      return ptx::widen(ptx::load_shared_f32(address));
    }
  }

  // Offsets inside a stage are immediates of the instruction.
  __device__ static void load_a(const SharedStorage& shared, int stage, int step, int fragment,
                                double (&a)[8]) {
    const std::uint32_t from = shared.stage(stage) + shared.lane_a;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      a[i] = load_element(
          from + LayoutA::offset(16 * fragment + i % 2 * 8, step * kStepDepth + i / 2 * 4));
  }

  __device__ static void load_b(const SharedStorage& shared, int stage, int step, int n_block,
                                double (&b)[4]) {
    const std::uint32_t from = shared.stage(stage) + shared.lane_b;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      b[i] = load_element(from + LayoutB::offset(8 * n_block, step * kStepDepth + i * 4));
  }

  // Computes `k_blocks` stages into `accumulators`, which it clears first.
  __device__ static void multiply(const SharedStorage& shared, PipelineState& state, int k_blocks,
                                  Accumulators& accumulators) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
#pragma unroll
      for (int j = 0; j < 4 * kBlocks; ++j) accumulators[i][j] = 0;
    if (k_blocks == 0) return;

    Fragments fragments;
    shared.barriers.consumer_wait(state);
#pragma unroll
    for (int i = 0; i < kFragments; ++i) load_a(shared, state.stage, 0, i, fragments.a[0][i]);
    load_b(shared, state.stage, 0, 0, fragments.b[0]);
    int k_block = 0;
    if constexpr (kSteps == 1) {
#pragma unroll 1
      for (; k_block + 1 < k_blocks; k_block += 2) {
        multiply_step<0, 0>(shared, state, true, fragments, accumulators);
        multiply_step<1, 0>(shared, state, k_block + 2 < k_blocks, fragments, accumulators);
      }
      if (k_block < k_blocks) multiply_step<0, 0>(shared, state, false, fragments, accumulators);
    } else {
#pragma unroll 1
      for (; k_block < k_blocks; ++k_block) {
        multiply_step<0, 0>(shared, state, true, fragments, accumulators);
        multiply_step<1, 1>(shared, state, k_block + 1 < k_blocks, fragments, accumulators);
      }
    }
  }

  // kBuffer: the fragments of a of this step. It is a template argument, because a dynamic index
  // would put them in local memory. kStep: the step of the stage; the last step loads fragments of
  // the next stage. Without `more` stages those fragments are not used.
  template <int kBuffer, int kStep>
  __device__ static void multiply_step(const SharedStorage& shared, PipelineState& state, bool more,
                                       Fragments& fragments, Accumulators& accumulators) {
    constexpr bool kLast = kStep + 1 == kSteps;
    // The block of 8 columns at which a of the next step is loaded: late for f64, early for f32.
    constexpr int kAhead = kSteps == 1 ? kBlocks - 1 - kFragments : 0;
    constexpr int kNext = kLast ? 0 : kStep + 1;
    PipelineState next = state;
    if constexpr (kLast) next.advance();
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      if (kLast && j == kAhead && more) shared.barriers.consumer_wait(next);
      if (j >= kAhead && j < kAhead + kFragments)
        load_a(shared, next.stage, kNext, j - kAhead, fragments.a[1 - kBuffer][j - kAhead]);
      const int buffer_b = (kBuffer * kBlocks + j) % 2;
      if (j + 1 < kBlocks)
        load_b(shared, state.stage, kStep, j + 1, fragments.b[1 - buffer_b]);
      else
        load_b(shared, next.stage, kNext, 0, fragments.b[1 - buffer_b]);
#pragma unroll
      for (int i = 0; i < kFragments; ++i)
        ptx::mma_f64(&accumulators[i][4 * j], fragments.a[kBuffer][i], fragments.b[buffer_b]);
    }
    if constexpr (kLast) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared.barriers.empty(state.stage));
      state = next;
    }
  }
};

}  // namespace tcgemm::sm90
