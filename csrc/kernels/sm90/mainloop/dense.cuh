// The sm_90a mainloop: warpgroups multiply out of the ring (ring.cuh) with wgmma, both operands in
// shared memory.
//
// Tried on an H200, 128x256 tile, 2048 to 8192, 300 ms a candidate (with 60 ms the chip has not
// reached its power cap, and smaller tiles look better than they are): waiting for every group
// before the next is issued costs 2-10 %; one slab or two a warp in the epilogue, L2 promotion of
// 128 or 256 bytes, groups of 4 to 32 rows of tiles, clusters of 1 or 2, and a warpgroup index that
// the compiler knows to be uniform are all within 2 % of each other. Without the epilogue the
// kernel would be 2-6 % faster.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "isa/mma_instructions.h"
#include "kernels/sm90/producer.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The wgmma of a row, n columns wide; refuses what the hardware does not have.
template <Kernel kRow>
constexpr ptx::WgmmaType wgmma_type(int n) {
  constexpr const isa::Instruction* kInstruction =
      isa::find(kRow.sparse ? isa::Family::wgmma_sparse : isa::Family::wgmma, kRow.input,
                kRow.input_b, kRow.accumulator);
  static_assert(kInstruction != nullptr);
  static_assert(kInstruction->mn_major || kRow.layout == Layout::TN ||
                    kRow.source_of_a == SourceOfA::registers,
                "8-bit and tf32 operands in shared memory are K-major");
  return {n, kRow.input, kRow.input_b, kRow.accumulator, kRow.layout, kRow.sparse};
}

template <Kernel kRow>
struct Mainloop {
  static_assert(kRow.plain(), "the mainloop serves dense products with both operands in memory");
  static constexpr ptx::WgmmaType kType = wgmma_type<kRow>(kRow.n);
  static constexpr int kBlockBytes = 64 * 128;
  static constexpr int kSteps = 4;  // of 32 bytes of k in a stage

  using Position = tile::Position<kRow.stages>;
  using Register = tile::Register<kRow.accumulator>;
  static constexpr int kRegisters = tile::registers<kRow.accumulator>(kRow.n);
  using Accumulators = Register[kRow.m64_blocks][kRegisters];

  // The products of all k-blocks into `accumulators`, which need no clearing. One group of wgmma is
  // in flight while the next is issued; a stage goes back when the group that read it has finished.
  __device__ static void multiply(const Block<kRow>& shared, Position& position, int blocks,
                                  int warpgroup, Cluster cluster, Accumulators& accumulators) {
    const std::uint32_t offset_a = warpgroup * kRow.m64_blocks * kBlockBytes;
    int previous = 0;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      ptx::mbarrier_wait(shared.barriers.full(position.stage), position.parity);
      const std::uint32_t stage = shared.stage(position.stage);
      const std::uint64_t a = ptx::wgmma_descriptor(stage + offset_a);
      const std::uint64_t b = ptx::wgmma_descriptor(stage + Ring<kRow>::kBytesA);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < kRow.m64_blocks; ++i)
          ptx::wgmma<kType>(
              accumulators[i],
              a + step * ptx::kDescriptorStep<major_a(kRow.layout)> + i * (kBlockBytes >> 4),
              b + step * ptx::kDescriptorStep<major_b(kRow.layout)>, block + step != 0);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (block != 0) release<kRow>(shared, previous, cluster);
      previous = position.stage;
      position.advance();
    }
    ptx::wgmma_wait<0>();
    release<kRow>(shared, previous, cluster);
  }
};

}  // namespace tcgemm::sm90
