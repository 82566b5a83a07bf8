// The sm_90a mainloop: one thread feeds the ring by TMA, warpgroups multiply out of it with wgmma.
//
//   stage:  a: tile_m / 64 blocks of 8 KB | b: tile_n / 64 blocks of 8 KB       (see ptx/wgmma.cuh)
//
// In a cluster of two, the blocks have neighbouring rows of a and the same columns of b. Each loads
// half of b for both: half of the rows of a K-major tile, half of the k of an MN-major one.
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
#include "core/params.h"
#include "isa/instructions.h"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

template <Kernel kRow>
struct Mainloop {
  static_assert(kRow.plain(), "the mainloop serves dense products with both operands in memory");
  static constexpr const isa::Instruction* kInstruction =
      isa::find(isa::Family::wgmma, kRow.input, kRow.accumulator);
  static_assert(kInstruction != nullptr && kRow.n % kInstruction->n_step == 0);
  static_assert(bits(kRow.input) == 16, "MN-major wgmma operands are 16 bits wide");

  static constexpr int kBlockBytes = 64 * 128;
  static constexpr int kBytesA = kRow.tile_m() / kBlock * kBlockBytes;
  static constexpr int kSteps = kRow.tile_k() / kInstruction->k;
  static constexpr bool kMajorKA = major_a(kRow.layout) == Major::K;
  static constexpr bool kMajorKB = major_b(kRow.layout) == Major::K;

  using Position = tile::Position<kRow.stages>;
  using Barriers = tile::Barriers<kRow.stages>;
  using Register = tile::Register<kRow.accumulator>;
  static constexpr int kRegisters = tile::registers<kRow.accumulator>(kRow.n);
  using Accumulators = Register[kRow.m64_blocks][kRegisters];

  struct Cluster {
    std::uint32_t size, rank;
  };

  // One stage: both operands of k-block `block`, for rows from `row` and columns from `col` on.
  __device__ static void load(const Sm90Params& params, std::uint32_t stage, std::uint32_t full,
                              int row, int col, int batch, int block, Cluster cluster) {
    const int k = block * kRow.tile_k();
    const int batch_a = params.a_batched ? batch : 0;
    const int batch_b = params.b_batched ? batch : 0;
    ptx::mbarrier_arrive_expect(full, kRow.stage_bytes());
    if constexpr (kMajorKA) {
      ptx::tma_load(stage, &params.a, full, k, row, batch_a);
    } else {
#pragma unroll
      for (int i = 0; i < kRow.tile_m() / kBlock; ++i)
        ptx::tma_load(stage + i * kBlockBytes, &params.a, full, row + i * kBlock, k, batch_a);
    }
    const std::uint32_t stage_b = stage + kBytesA;
    if constexpr (kMajorKB) {
      const int rows = kRow.n / cluster.size, first = cluster.rank * rows;
      load_b(params, stage_b + first * 128, full, k, col + first, batch_b, cluster);
    } else {
      const int rows = kBlock / cluster.size, first = cluster.rank * rows;
#pragma unroll
      for (int i = 0; i < kRow.n / kBlock; ++i)
        load_b(params, stage_b + i * kBlockBytes + first * 128, full, col + i * kBlock, k + first,
               batch_b, cluster);
    }
  }

  __device__ static void load_b(const Sm90Params& params, std::uint32_t shared, std::uint32_t full,
                                int inner, int outer, int batch, Cluster cluster) {
    if (cluster.size == 1)
      ptx::tma_load(shared, &params.b, full, inner, outer, batch);
    else
      ptx::tma_load_multicast(shared, &params.b, full, inner, outer, batch, 3);
  }

  // The products of all k-blocks into `accumulators`, which need no clearing. One group of wgmma is
  // in flight while the next is issued; a stage goes back when the group that read it has finished.
  __device__ static void multiply(std::uint32_t ring, const Barriers& barriers, Position& position,
                                  int blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators) {
    const int thread = threadIdx.x % 128;
    const auto release = [&](int stage) {
      if (thread < cluster.size) ptx::mbarrier_arrive_remote(barriers.empty(stage), thread);
    };
    const std::uint32_t offset_a = warpgroup * kRow.m64_blocks * kBlockBytes;
    int previous = 0;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      ptx::mbarrier_wait(barriers.full(position.stage), position.parity);
      const std::uint32_t stage = ring + position.stage * kRow.stage_bytes();
      const std::uint64_t a = ptx::wgmma_descriptor(stage + offset_a);
      const std::uint64_t b = ptx::wgmma_descriptor(stage + kBytesA);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < kRow.m64_blocks; ++i)
          ptx::wgmma<kRow.n, kRow.input, kRow.accumulator, kRow.layout>(
              accumulators[i],
              a + step * ptx::kDescriptorStep<major_a(kRow.layout)> + i * (kBlockBytes >> 4),
              b + step * ptx::kDescriptorStep<major_b(kRow.layout)>, block + step != 0);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (block != 0) release(previous);
      previous = position.stage;
      position.advance();
    }
    ptx::wgmma_wait<0>();
    release(previous);
  }
};

}  // namespace tcgemm::sm90
