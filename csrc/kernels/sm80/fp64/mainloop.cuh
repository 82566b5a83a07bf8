// The f64 mainloop of sm_80: all threads fill the pipeline stages with cp.async, all warps issue
// mma.sync. kernels/sm90/fp64/mainloop.cuh has the same stages and fragments.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "isa/mma_instructions.h"
#include "ptx/cp_async.cuh"
#include "ptx/mma_f64.cuh"
#include "ptx/shared.cuh"
#include "tile/fp64_producer.cuh"
#include "tile/groups.cuh"

namespace tcgemm::sm80 {

// The content of a stage, and the part of each warp:
//
//   stage:  a: tile_m x 16 of k | b: tile_n x 16 of k                  (tile/fp64_producer.cuh)
//   tile:   a warp owns 32 x 32; each warpgroup copies its part of a and of b
//
// While stage s is multiplied, stages s + 1 .. s + stages - 1 are in flight. The last of them
// replaces the stage that was read before s. One barrier a k-block shows that the next stage has
// arrived and that the previous one is free.
template <GemmConfig kConfig>
struct Fp64Mainloop {
  static_assert(kConfig.mainloop == Mainloop::fp64 && kConfig.input == DType::f64 &&
                kConfig.accumulator == DType::f64);
  static constexpr const isa::Instruction* kInstruction =
      isa::find(isa::InstructionKind::mma, DType::f64, DType::f64, DType::f64, kConfig.arch);
  static_assert(kInstruction->m == 8 && kInstruction->k == 4);
  static constexpr int kWarpM = 32, kWarpN = 32;
  static constexpr int kWarps = kConfig.threads() / 32, kWarpsM = kConfig.tile_m() / kWarpM;
  static_assert(kWarpsM * kWarpM == kConfig.tile_m() &&
                kConfig.tile_n() * kWarpsM == kWarpN * kWarps);
  static constexpr int kFragments = kWarpM / 16, kBlocks = kWarpN / 8;
  using Accumulators = double[kFragments][4 * kBlocks];

  static constexpr Major kMajorA = major_a(kConfig.layout), kMajorB = major_b(kConfig.layout);
  using LayoutA = tile::Fp64SmemLayout<DType::f64, kMajorA, kConfig.tile_m()>;
  using LayoutB = tile::Fp64SmemLayout<DType::f64, kMajorB, kConfig.tile_n()>;
  static constexpr int kPartA = kConfig.tile_m() / kConfig.warpgroups;
  static constexpr int kPartB = kConfig.tile_n() / kConfig.warpgroups;
  using ProducerA = tile::Fp64Producer<DType::f64, kMajorA, kConfig.tile_m(), kPartA>;
  using ProducerB = tile::Fp64Producer<DType::f64, kMajorB, kConfig.tile_n(), kPartB>;
  static_assert(LayoutA::kDepth == kConfig.tile_k() && kConfig.tile_k() == 16);
  static_assert(LayoutA::kBytes + LayoutB::kBytes <= kConfig.stage_bytes());
  static constexpr int kStagesBytes = kConfig.stages * kConfig.stage_bytes();

  // Origin of the warp in the tile.
  __device__ static int warp_row() { return threadIdx.x / 32 % kWarpsM * kWarpM; }
  __device__ static int warp_col() { return threadIdx.x / 32 / kWarpsM * kWarpN; }

  // Computes the tile at (row, col) into `accumulators`, which it clears first.
  __device__ static void multiply(const CpAsyncParams& params, const Extent& extent, int k_begin,
                                  std::uint32_t stages, int row, int col, int batch,
                                  Accumulators& accumulators) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
#pragma unroll
      for (int j = 0; j < 4 * kBlocks; ++j) accumulators[i][j] = 0;

    const int k_blocks = extent.k / kConfig.tile_k() + (extent.k % kConfig.tile_k() != 0);
    if (k_blocks == 0) return;
    const int warpgroup = threadIdx.x / 128;
    const TensorRef from_a = tile::from_k<kConfig>(params.a, params.a.stride_col, k_begin);
    const TensorRef from_b = tile::from_k<kConfig>(params.b, params.b.stride_row, k_begin);
    ProducerA a(from_a, from_a.stride_row, from_a.stride_col, params.a_vector,
                row + warpgroup * kPartA, extent.m, extent.k, batch);
    ProducerB b(from_b, from_b.stride_col, from_b.stride_row, params.b_vector,
                col + warpgroup * kPartB, extent.n, extent.k, batch);
    const std::uint32_t part_a = LayoutA::offset(warpgroup * kPartA, 0);
    const std::uint32_t part_b = LayoutA::kBytes + LayoutB::offset(warpgroup * kPartB, 0);
    // Past the end of k it writes zeros, which are never multiplied.
    const auto copy = [&](std::uint32_t stage) {
      a.load(stage + part_a);
      b.load(stage + part_b);
      ptx::cp_async_commit();
    };
#pragma unroll 1
    for (int stage = 0; stage < kConfig.stages - 1; ++stage)
      copy(stages + stage * kConfig.stage_bytes());

    const int group = threadIdx.x % 32 / 4, inside = threadIdx.x % 4;
    const std::uint32_t lane_a = LayoutA::offset(warp_row() + group, inside);
    const std::uint32_t lane_b = LayoutA::kBytes + LayoutB::offset(warp_col() + group, inside);
    std::uint32_t read = stages, write = stages + (kConfig.stages - 1) * kConfig.stage_bytes();
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
      ptx::cp_async_wait<kConfig.stages - 2>();
      __syncthreads();
      copy(write);
      multiply_stage(read + lane_a, read + lane_b, accumulators);
      write = read;
      read += kConfig.stage_bytes();
      if (read == stages + kStagesBytes) read = stages;
    }
    ptx::cp_async_wait<0>();
  }

 private:
  __device__ static void multiply_stage(std::uint32_t from_a, std::uint32_t from_b,
                                        Accumulators& accumulators) {
    double a[kFragments][8];
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j)
        a[i][j] = ptx::load_shared_f64(from_a + LayoutA::offset(16 * i + j % 2 * 8, j / 2 * 4));
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      double b[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        b[j] = ptx::load_shared_f64(from_b + LayoutB::offset(8 * block, 4 * j));
#pragma unroll
      for (int i = 0; i < kFragments; ++i) ptx::mma_f64_sm80(&accumulators[i][4 * block], a[i], b);
    }
  }
};

}  // namespace tcgemm::sm80
