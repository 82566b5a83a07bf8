// The sm_90a mainloop of dense GEMMs whose operands both lie in shared memory (SS): consumer
// warpgroups issue WGMMA on the pipeline stages.
//
// docs/dev/kernels/sm90-dense.md has the alternatives that were measured.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "isa/mma_instructions.h"
#include "kernels/sm90/clear_k.cuh"
#include "kernels/sm90/order_barrier.cuh"
#include "kernels/sm90/producer.cuh"
#include "ptx/uniform.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The WGMMA instruction of a config, n columns wide. Asserts that the hardware has it.
template <GemmConfig kConfig>
constexpr ptx::WgmmaType wgmma_type(int n) {
  constexpr const isa::Instruction* kInstruction = isa::find(
      kConfig.is_sparse() ? isa::InstructionKind::wgmma_sparse : isa::InstructionKind::wgmma,
      kConfig.input, kConfig.input_b, kConfig.accumulator);
  static_assert(kInstruction != nullptr);
  static_assert(kInstruction->mn_major || kConfig.layout == Layout::TN || kConfig.is_rs(),
                "8-bit and tf32 operands in shared memory are K-major");
  const bool a_in_registers = kConfig.is_rs() && bits(kConfig.input) == 16;
  return {n,
          kConfig.input,
          kConfig.input_b,
          kConfig.accumulator,
          kConfig.layout,
          kConfig.is_sparse(),
          a_in_registers};
}

template <GemmConfig kConfig>
struct DenseMainloop {
  static_assert(kConfig.mainloop == Mainloop::dense);
  // An instruction has at most 256 columns. A wider tile has two, side by side.
  static constexpr int kPiece = kConfig.n > 256 ? 192 : kConfig.n;
  static constexpr int kBlockBytes = 64 * 128;
  static constexpr int kSteps = 4;  // steps of 32 bytes of k in a stage
  // Where other registers are scarce, ptxas keeps the stage in uniform registers by itself.
  static constexpr bool kIsUniform = kConfig.warpgroups == 3 || kConfig.n > 256;

  static constexpr int kGroupStages = kConfig.group_stages();

  using Groups = tile::StageGroups<kGroupStages>;
  using PipelineState = tile::PipelineState<kConfig.stage_groups()>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  using Accumulators = Register[kConfig.m64_blocks][kRegisters];

  // Computes all k-blocks of a tile, of which there is at least one. The first WGMMA overwrites
  // `accumulators`. One WGMMA group is in flight while the next is issued; stages are released when
  // the group that reads them has completed. meanwhile() is called once, while a group is in
  // flight: pingpong, of the other warpgroup.
  template <class Meanwhile>
  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState state,
                                  int k_blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators, const Meanwhile& meanwhile) {
    multiply_blocks(shared, state, k_blocks, 0, kConfig.tile_k(), warpgroup, cluster, accumulators,
                    meanwhile);
  }

  // The same for the k from `first` to `end`, counted from the first one that is loaded. Others in
  // the k-blocks are of other groups.
  template <class Meanwhile>
  __device__ static void multiply_range(const SharedStorage<kConfig>& shared, PipelineState state,
                                        int first, int end, int warpgroup, Cluster cluster,
                                        Accumulators& accumulators, const Meanwhile& meanwhile) {
    static_assert(kGroupStages == 1 && kConfig.grouped == Axis::k);
    const int before = (end - 1) / kConfig.tile_k();
    multiply_blocks(shared, state, before + 1, first, end - before * kConfig.tile_k(), warpgroup,
                    cluster, accumulators, meanwhile);
  }

 private:
  // first: of the first k-block. last_end: of the last one.
  template <class Meanwhile>
  __device__ __forceinline__ static void multiply_blocks(const SharedStorage<kConfig>& shared,
                                                         PipelineState state, int k_blocks,
                                                         int first, int last_end, int warpgroup,
                                                         Cluster cluster,
                                                         Accumulators& accumulators,
                                                         const Meanwhile& meanwhile) {
    constexpr bool kRagged = kConfig.grouped == Axis::k;
    const std::uint32_t offset_a =
        kConfig.pingpong ? 0 : ptx::uniform(warpgroup * kConfig.m64_blocks * kBlockBytes);
    if constexpr (kConfig.pingpong) {
      meanwhile();  // the other warpgroup keeps the tensor cores busy
      OrderBarrier<kConfig>::wait(warpgroup);
    }
    if constexpr (kRagged)
      clear(shared, state, offset_a, first, k_blocks == 1 ? last_end : kConfig.tile_k(), warpgroup);
    if (kGroupStages > 1 && Groups::first_size(k_blocks) == 1)
      multiply_group<1, false>(shared, state, offset_a, accumulators);
    else
      multiply_group<kGroupStages, false>(shared, state, offset_a, accumulators);
    if constexpr (!kConfig.pingpong) meanwhile();
    int previous = state.stage;
    state.advance();
#pragma unroll 1
    for (int groups = Groups::count(k_blocks); --groups > 0;) {
      if (kRagged && groups == 1) clear(shared, state, offset_a, 0, last_end, warpgroup);
      multiply_group<kGroupStages, true>(shared, state, offset_a, accumulators);
      ptx::wgmma_wait<1>();
      consumer_release<kConfig>(shared, previous, cluster);
      previous = state.stage;
      state.advance();
    }
    if constexpr (kConfig.pingpong) OrderBarrier<kConfig>::arrive(warpgroup);
    ptx::wgmma_wait<0>();
    consumer_release<kConfig>(shared, previous, cluster);
  }

  // Clears the k outside of [first, end) of a stage, if there are any.
  __device__ __forceinline__ static void clear(const SharedStorage<kConfig>& shared,
                                               const PipelineState& state, std::uint32_t offset_a,
                                               int first, int end, int warpgroup) {
    constexpr int kCleared = 3;  // named barriers after those of OrderBarrier
    if (first == 0 && end == kConfig.tile_k()) return;
    shared.barriers.consumer_wait(state);
    clear_stage<kConfig>(shared.stage(state.stage), offset_a, first, end, kCleared + warpgroup);
  }

  // Issues the WGMMA group of kStages stages.
  template <int kStages, bool kAccumulate>
  __device__ __forceinline__ static void multiply_group(const SharedStorage<kConfig>& shared,
                                                        const PipelineState& state,
                                                        std::uint32_t offset_a,
                                                        Accumulators& accumulators) {
    shared.barriers.consumer_wait(state);
    const std::uint32_t stage =
        kIsUniform ? shared.stage(state.stage) : shared.uniform_stage(state.stage);
    const std::uint64_t first_a = ptx::wgmma_descriptor(stage + offset_a);
    const std::uint64_t first_b = ptx::wgmma_descriptor(stage + TmaProducer<kConfig>::kBytesA);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kStages * kSteps; ++step) {
      const int next_stage = step / kSteps * (kConfig.stage_bytes() >> 4);
      const std::uint64_t a =
          first_a + next_stage + step % kSteps * ptx::kDescriptorStep<major_a(kConfig.layout)>;
      const std::uint64_t b =
          first_b + next_stage + step % kSteps * ptx::kDescriptorStep<major_b(kConfig.layout)>;
#pragma unroll
      for (int i = 0; i < kConfig.m64_blocks; ++i)
        multiply_step(accumulators[i], a + i * (kBlockBytes >> 4), b, kAccumulate || step != 0);
    }
    ptx::wgmma_commit();
  }

  __device__ __forceinline__ static void multiply_step(Register (&accumulators)[kRegisters],
                                                       std::uint64_t a, std::uint64_t b,
                                                       bool accumulate) {
    if constexpr (kPiece == kConfig.n) {
      ptx::wgmma<wgmma_type<kConfig>(kPiece)>(accumulators, a, b, accumulate);
    } else {
      constexpr int kRest = kConfig.n - kPiece;
      constexpr int kFirst = tile::registers<kConfig.accumulator>(kPiece);
      constexpr int kSecond = kRegisters - kFirst;
      // 64 columns of b are a block of 64 * 128 bytes, in either major.
      static_assert(kPiece % 64 == 0);
      ptx::wgmma<wgmma_type<kConfig>(kPiece)>(
          reinterpret_cast<Register(&)[kFirst]>(accumulators[0]), a, b, accumulate);
      ptx::wgmma<wgmma_type<kConfig>(kRest)>(
          reinterpret_cast<Register(&)[kSecond]>(accumulators[kFirst]), a,
          b + kPiece / 64 * (kBlockBytes >> 4), accumulate);
    }
  }
};

}  // namespace tcgemm::sm90
