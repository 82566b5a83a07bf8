// The mainloop of sm_80 with a packed weight (core/packed_weight.h): all threads fill the pipeline
// stages with cp.async, and each warp decodes rows of the weight into the fragments of mma.sync.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm80/producer.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "tile/code_pairs.cuh"
#include "tile/decode.cuh"
#include "tile/fragment.cuh"
#include "tile/packed_reader.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::sm80 {

// The content of a stage, 64 of k:
//
//   stage:  codes: 128 rows of the weight | b: tile_n rows of 128 bytes, 128-byte swizzle | scales
//
// A warp owns kFragments * 16 rows and all columns of the tile. So a code is decoded once, and each
// warp reads all of b. The stages follow each other as in CpAsyncMainloop (cp_async.cuh): one
// barrier a k-block shows that the next stage has arrived and that the previous one is free.
template <GemmConfig kConfig>
struct PackedMainloop {
  static_assert(kConfig.mainloop == Mainloop::packed && kConfig.layout == Layout::TN &&
                kConfig.accumulator == DType::f32 && kConfig.tile_m() == PackedLayout::kRows);
  static constexpr int kWarps = kConfig.threads() / 32;
  static constexpr int kFragments = kConfig.m64_blocks;
  static constexpr int kWarpM = 16 * kFragments, kWarpN = kConfig.tile_n();
  static constexpr int kCodeBytes = kConfig.packed_code_bytes(PackedLayout::kRows);
  static constexpr int kBytesB = kConfig.tile_n() * kConfig.row_bytes();
  static constexpr int kStagesBytes = kConfig.stages * kConfig.stage_bytes();
  static_assert(kConfig.stage_bytes() % 1024 == 0 && kCodeBytes % 1024 == 0);

  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kWarpN);
  using Accumulators = Register[kFragments][kRegisters];
  using ProducerB = CpAsyncProducer<kConfig.input, Major::K, kConfig.tile_n(), kConfig.threads()>;
  static constexpr int kSteps = PackedLayout::kSteps;
  using Fragments = std::uint32_t[kFragments][kSteps][4];

  // Origin of the warp in the tile.
  __device__ static int warp_row() { return threadIdx.x / 32 * kWarpM; }
  __device__ static int warp_col() { return 0; }

  // Copies the codes and scales of one k-block after another.
  struct ProducerA {
    static constexpr int kVectors = kCodeBytes / 16;
    static_assert(kVectors % kConfig.threads() == 0);

    const PackedParams& packed;
    const char* codes;   // this thread's first vector of the next k-block
    const char* scales;  // of the first group
    int scale_vectors;   // of a k-block
    int block = 0;

    __device__ ProducerA(const PackedParams& weight, int row) : packed(weight) {
      const std::int64_t rows = row / PackedLayout::kRows;
      codes = weight.codes + rows * weight.blocks_k * kCodeBytes + threadIdx.x * 16;
      scales = reinterpret_cast<const char*>(weight.scales + rows * weight.groups * weight.vectors *
                                                                 PackedLayout::kRows) +
               threadIdx.x * 16;
      scale_vectors = weight.groups_in_block * weight.vectors * PackedLayout::kRows / 4;
    }

    // Past the last k-block it copies nothing.
    __device__ void copy(std::uint32_t stage) {
      if (block < packed.blocks_k) {
        const std::uint32_t own = stage + threadIdx.x * 16;
#pragma unroll
        for (int i = 0; i < kVectors; i += kConfig.threads())
          ptx::cp_async(own + i * 16, codes + i * 16);
        codes += kCodeBytes;
        const char* const group = scales + std::int64_t(packed.first_group(block)) *
                                               (packed.vectors * PackedLayout::kRows * 4);
        if (int(threadIdx.x) < scale_vectors) ptx::cp_async(own + kCodeBytes + kBytesB, group);
      }
      ++block;
    }
  };
  // A thread copies at most one vector of scales.
  static_assert(kConfig.packed_scale_bytes(PackedLayout::kRows) <= kConfig.threads() * 16);

  // Computes the tile at (row, col) into `accumulators`, which it clears first. `stages` is
  // 1024-byte aligned. On return the copies of this thread have completed, but other warps may
  // still read the stages.
  __device__ static void multiply(const CpAsyncParams& params, const Extent&, int,
                                  std::uint32_t stages, int row, int col, int batch,
                                  Accumulators& accumulators) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
#pragma unroll
      for (float& sum : accumulators[i]) sum = 0;
    const PackedParams& packed = params.packed;
    const std::uint32_t code_pairs = stages + kStagesBytes;
    if constexpr (kConfig.table_bytes() > 0)
      tile::fill_code_pairs<kConfig.input, kConfig.threads() / 32>(packed, code_pairs);
    ProducerA a(packed, row);
    ProducerB b(params.b, params.b.stride_col, params.b.stride_row, col, params.extent.n,
                params.extent.k, batch);
    const auto copy = [&](std::uint32_t stage) {
      a.copy(stage);
#pragma unroll
      for (int i = 0; i < ProducerB::kCopies; ++i) b.copy(stage + kCodeBytes, i);
      ptx::cp_async_commit();
    };
#pragma unroll 1
    for (int stage = 0; stage < kConfig.stages - 1; ++stage)
      copy(stages + stage * kConfig.stage_bytes());
    std::uint32_t read = stages, write = stages + (kConfig.stages - 1) * kConfig.stage_bytes();
#pragma unroll 1
    for (int block = 0; block < packed.blocks_k; ++block) {
      ptx::cp_async_wait<kConfig.stages - 2>();
      __syncthreads();
      copy(write);
      Fragments fragments;
      decode(packed, {read, read + kCodeBytes + kBytesB, code_pairs}, fragments);
      multiply_block(read + kCodeBytes, fragments, accumulators);
      write = read;
      read += kConfig.stage_bytes();
      if (read == stages + kStagesBytes) read = stages;
    }
    ptx::cp_async_wait<0>();
  }

 private:
  // The format is a branch in each k-block: a loop for each format spills where the loops join.
  __device__ __forceinline__ static void decode(const PackedParams& packed,
                                                const tile::PackedBlock& block,
                                                Fragments& fragments) {
    const int unit = threadIdx.x / 32 * kFragments;
    tile::for_reader<kConfig.input, kConfig.weight_bits>(packed, [&]<class Reader>() {
#pragma unroll
      for (int i = 0; i < kFragments; ++i)
        Reader(packed, unit + i, block.code_pairs).load(block, fragments[i]);
    });
  }

  // A row of b, a column of the tile, has 128 bytes.
  __device__ __forceinline__ static void multiply_block(std::uint32_t b, const Fragments& fragments,
                                                        Accumulators& accumulators) {
    const int row = threadIdx.x % 8, matrix = threadIdx.x % 32 / 8;
#pragma unroll
    for (int j = 0; j < kWarpN / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t columns[4];
        ptx::ldmatrix_x4<false>(columns, b + j * 1024 + tile::swizzle128(row, 4 * half + matrix));
#pragma unroll
        for (int step = 0; step < 2; ++step)
#pragma unroll
          for (int i = 0; i < kFragments; ++i)
            ptx::mma_sync<kConfig.input, kConfig.input>(
                &accumulators[i][4 * j], fragments[i][2 * half + step], &columns[2 * step]);
      }
  }
};

}  // namespace tcgemm::sm80
