// The RS mainloop of sm_90a (layout TT): WGMMA reads a from registers. Shared-memory operands of 8
// and 32 bits must be K-major (PTX ISA, wgmma.mma_async). Here a is MN-major in the stage and is
// transposed into fragments. Mostly these are NN problems after swap-AB: the register operand is b
// of the problem, transposed, and `out` is column-major.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/mainloop/rs_pipeline.cuh"
#include "kernels/sm90/producer.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/pipeline.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::sm90 {

// load(step, a) returns the fragment of a for one WGMMA, 32 bytes of k deep. `step` is the address
// of its first row of k in the first box of a. The constructor takes the warp's first row in the
// tile.
template <int kBits>
struct FragmentTranspose;

// The box of those 16 rows, and their chunk of 16 bytes in row 0 of k before the swizzle.
template <int kBits>
struct BoxPosition {
  static constexpr int kBoxMn = 1024 / kBits;
  std::uint32_t box;
  int chunk;

  __device__ explicit BoxPosition(int row)
      : box(row / kBoxMn * kBoxMn * 128), chunk(row % kBoxMn * kBits / 128) {}
};

// ldmatrix.trans transposes pairs of bytes: a register holds two adjacent k for each of two
// adjacent m. Two registers hold four adjacent k for m and for m + 1. If a matrix held rows 4 t and
// 4 t + 1 of k, its eight rows would use only half of the banks. So half of each matrix holds rows
// 4 t + 2 and 4 t + 3 instead, and `select` undoes the exchange for each lane.
template <>
struct FragmentTranspose<8> {
  static constexpr int kRows = 32;  // rows of k in a step
  std::uint32_t offset;
  std::uint32_t select[2];  // byte selectors for m and for m + 1

  __device__ explicit FragmentTranspose(int row_of_tile) {
    const BoxPosition<8> position(row_of_tile);
    const int lane = threadIdx.x % 32;
    const int matrix = lane / 8, row = lane % 8;
    const int k = 16 * (matrix / 2) + row / 2 * 4 + 2 * ((matrix ^ row / 4) & 1) + row % 2;
    offset = position.box + tile::swizzle128(k, position.chunk);
    select[0] = lane % 4 < 2 ? 0x6420 : 0x2064;
    select[1] = select[0] + 0x1111;
  }

  __device__ void load(std::uint32_t step, std::uint32_t (&a)[4]) const {
    std::uint32_t raw[4];
    ptx::ldmatrix_x4<true>(raw, step + offset);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = __byte_perm(raw[i & 2], raw[(i & 2) + 1], select[i & 1]);
  }
};

// Two adjacent m are 8 bytes of a row. The lanes of a half-warp read rows t of k at four positions,
// two of which would conflict in banks. One of each two loads row t + 4 first, and swaps
// afterwards.
template <>
struct FragmentTranspose<32> {
  static constexpr int kRows = 8;
  std::uint32_t offset;
  bool swap;

  __device__ explicit FragmentTranspose(int row) {
    const BoxPosition<32> position(row);
    const int lane = threadIdx.x % 32;
    const int group = lane / 4;
    swap = group & 2;
    offset = position.box + tile::swizzle128(lane % 4 + 4 * swap, position.chunk + group / 2) +
             8 * (group & 1);
  }

  __device__ void load(std::uint32_t step, std::uint32_t (&a)[4]) const {
    constexpr std::uint32_t kFourRows = 4 * 128 | 4 << 4;  // bit 2 of the row, and of its swizzle
    const uint2 x = ptx::load_shared_pair(step + offset);
    const uint2 y = ptx::load_shared_pair(step + (offset ^ kFourRows));
    a[0] = swap ? y.x : x.x;
    a[1] = swap ? y.y : x.y;
    a[2] = swap ? x.x : y.x;
    a[3] = swap ? x.y : y.y;
  }
};

// The content of a stage:
//
//   stage:  a: boxes of kBoxMn of m, a row of 128 bytes is one k | b: as in dense.cuh
//
// In each group of 16 rows, WGMMA rows g and g + 8 hold rows 2 g and 2 g + 1 of the tile, because a
// transposed load returns two adjacent m. The epilogue handles this order
// (tile::RowOrder::interleaved).
template <GemmConfig kConfig>
struct RsMainloop {
  static_assert(kConfig.mainloop == Mainloop::rs && kConfig.layout == Layout::TT &&
                kConfig.input == kConfig.input_b && bits(kConfig.input) != 16 &&
                kConfig.m64_blocks == 1);
  static constexpr ptx::WgmmaType kType = wgmma_type<kConfig>(kConfig.n);
  static_assert(kConfig.tile_m() % TmaProducer<kConfig>::kBoxMn == 0,
                "a is loaded in boxes of 128 bytes of m");
  static constexpr int kSteps = 4;  // steps of 32 bytes of k in a stage

  using PipelineState = tile::PipelineState<kConfig.stages>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  using Accumulators = Register[kConfig.m64_blocks][kRegisters];
  using Fragments = std::uint32_t[kSteps][4];

  // Computes all k-blocks of a tile. The first WGMMA overwrites `accumulators`.
  template <class Meanwhile>
  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState state,
                                  int k_blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators, const Meanwhile& meanwhile) {
    meanwhile();
    const FragmentTranspose<bits(kConfig.input)> transpose(warpgroup * 64 +
                                                           threadIdx.x / 32 % 4 * 16);
    const auto load = [&](std::uint32_t stage, Fragments& a) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        transpose.load(stage + step * transpose.kRows * 128, a[step]);
    };
    const auto issue = [&](std::uint32_t stage, const Fragments& a, bool accumulate) {
      const std::uint64_t b = ptx::wgmma_descriptor(stage + TmaProducer<kConfig>::kBytesA);
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::wgmma<kType>(accumulators[0], a[step], b + step * ptx::kDescriptorStep<Major::K>,
                          accumulate || step != 0);
    };
    rs_pipeline<kConfig, Fragments>(shared, state, k_blocks, cluster, accumulators[0], load, issue);
  }
};

}  // namespace tcgemm::sm90
