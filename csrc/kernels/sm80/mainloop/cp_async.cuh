// The sm_80 mainloop: all threads feed the ring with cp.async, all warps multiply with mma.sync.
//
//   stage:  a: tile_m rows | b: tile_n rows, 128 bytes of k with the 128-byte swizzle (loader.cuh)
//   tile:   2 rows of warps; each warp owns tile_m / 2 x 2 * tile_n / warps of the result
//
// Where a is sparse (core/sparse.h) a stage has its values, half as many, and metadata
// (metadata.cuh); a step of mma.sp takes as much of a as a dense one, and of b two steps'
// fragments.
//
// While stage s is multiplied, stages s + 1 .. s + stages - 1 arrive, the last of them in the slot
// that was read before. One barrier a stage says both: it has arrived, and that slot is free.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "core/sparse.h"
#include "isa/mma_instructions.h"
#include "kernels/sm80/fragments.cuh"
#include "kernels/sm80/mainloop/promoted.cuh"
#include "kernels/sm80/mainloop/sparse.cuh"
#include "kernels/sm80/producer.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma_sparse.cuh"
#include "ptx/mma_sync.cuh"
#include "tile/fragment.cuh"

namespace tcgemm::sm80 {

template <GemmConfig kConfig>
struct DenseMainloop {
  static_assert(kConfig.terms == 1 && kConfig.operand_source == OperandSource::SS,
                "the mainloop serves products with both operands in memory");
  static_assert(!kConfig.sparse || (!kConfig.promotes() && major_a(kConfig.layout) == Major::K));
  static constexpr const isa::Instruction* kInstruction =
      isa::find(kConfig.sparse ? isa::InstructionKind::mma_sparse : isa::InstructionKind::mma,
                kConfig.input, kConfig.input_b, kConfig.accumulator);
  static_assert(kInstruction != nullptr && kInstruction->arch == kConfig.arch);
  static_assert(kInstruction->m == 16 && kInstruction->n == 8);
  static constexpr int kStepsB = kConfig.sparse ? 2 : 1;  // of 32 bytes of k, in one of a
  static_assert(kInstruction->k * bits(kConfig.input) == 256 * kStepsB &&
                bits(kConfig.input_b) == bits(kConfig.input));

  static constexpr int kWarps = kConfig.threads() / 32;
  static constexpr int kWarpM = kConfig.tile_m() / 2;
  static constexpr int kWarpN = kConfig.tile_n() * 2 / kWarps;
  static constexpr int kSteps = kConfig.tile_k() / kInstruction->k;
  static_assert(kSteps % 2 == 0, "fragments alternate between two buffers");
  static constexpr int kBytesA = kConfig.tile_m() * kConfig.row_bytes_a();
  static constexpr int kBytesB = kConfig.tile_n() * kConfig.row_bytes();
  static constexpr int kRingBytes = kConfig.stages * kConfig.stage_bytes();
  static constexpr Major kMajorA = major_a(kConfig.layout), kMajorB = major_b(kConfig.layout);

  using LoaderA =
      Loader<kConfig.input, kMajorA, kConfig.tile_m(), kConfig.threads(), kConfig.sparse>;
  using LoaderB = Loader<kConfig.input_b, kMajorB, kConfig.tile_n(), kConfig.threads()>;
  static constexpr int kStepA = LoaderA::kCopies / kSteps, kStepB = LoaderB::kCopies / kSteps;
  static_assert(kStepA * kSteps == LoaderA::kCopies && kStepB * kSteps == LoaderB::kCopies);

  using ReaderA =
      Reader<kConfig.input, kMajorA, Order::mn_first, kWarpM, LoaderA::kBlockBytes, kConfig.sparse>;
  using ReaderB = Reader<kConfig.input_b, kMajorB, Order::k_first, kWarpN, LoaderB::kBlockBytes>;
  using FragmentsA = typename ReaderA::Fragments;
  using FragmentsB = typename ReaderB::Fragments[kStepsB];
  using Element = sm80::Element<kConfig.input>;
  static constexpr int kChunk = LoaderA::kChunk;

  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kFragments = kWarpM / 16;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kWarpN);
  using Accumulators = Register[kFragments][kRegisters];
  using Promotion = sm80::Promotion<kConfig, kWarpM, kWarpN>;
  using Metadata = sm80::Metadata<kConfig, kFragments>;

  // Of the warp, in the tile.
  __device__ static int warp_row() { return threadIdx.x / 32 % 2 * kWarpM; }
  __device__ static int warp_col() { return threadIdx.x / 64 * kWarpN; }

  // The products of the tile at (row, col) into `accumulators`, which need no clearing. `ring` has
  // 1024-byte alignment. On return this thread's copies have landed, but other warps may still be
  // reading the ring.
  __device__ static void multiply(const CpAsyncParams& params, std::uint32_t ring, int row, int col,
                                  int batch, Accumulators& accumulators) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
#pragma unroll
      for (int j = 0; j < kRegisters; ++j) accumulators[i][j] = 0;

    const int blocks =
        params.extent.k / kConfig.tile_k() + (params.extent.k % kConfig.tile_k() != 0);
    if (blocks == 0) return;
    const int stored_k_a =
        kConfig.sparse ? static_cast<int>(value_columns(params.extent.k, pattern_of(kConfig.input)))
                       : params.extent.k;
    LoaderA a(params.a, params.a.stride_row, params.a.stride_col, row, params.extent.m, stored_k_a,
              batch);
    LoaderB b(params.b, params.b.stride_col, params.b.stride_row, col, params.extent.n,
              params.extent.k, batch);
    Promotion promotion(params, row + warp_row(), col + warp_col(), batch);
    Metadata metadata(params.sparse, row, warp_row(), blocks);
    const int major_a = kMajorA == Major::K ? stored_k_a : params.extent.m;
    const int major_b = kMajorB == Major::K ? params.extent.k : params.extent.n;
    if (params.a_vector && params.b_vector && (major_a | major_b) % kChunk == 0)
      multiply_whole(a, b, metadata, promotion, ring, blocks, accumulators);
    else
      multiply_any(params, a, b, metadata, promotion, ring, blocks, accumulators);
    ptx::cp_async_wait<0>();
  }

  // Both operands in whole chunks of 16 bytes. Fragments of the next step are read while this one
  // is multiplied, and the copies are spread over the steps.
  __device__ static void multiply_whole(LoaderA& a, LoaderB& b, Metadata& metadata,
                                        Promotion& promotion, std::uint32_t ring, int blocks,
                                        Accumulators& accumulators) {
    const auto copy = [&](std::uint32_t stage, int step) {
#pragma unroll
      for (int i = 0; i < kStepA; ++i) a.copy_whole(stage, step * kStepA + i);
#pragma unroll
      for (int i = 0; i < kStepB; ++i) b.copy_whole(stage + kBytesA, step * kStepB + i);
      if (step == 0) metadata.copy(stage + kBytesA + kBytesB);
    };
#pragma unroll 1
    for (int stage = 0; stage < kConfig.stages - 1; ++stage) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) copy(ring + stage * kConfig.stage_bytes(), step);
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<kConfig.stages - 2>();
    __syncthreads();

    FragmentsA fragments_a[2];
    FragmentsB fragments_b[2];
    const std::uint32_t lane_a = ReaderA::lane_offset(warp_row());
    const std::uint32_t lane_b = ReaderB::lane_offset(warp_col()) + kBytesA;
    std::uint32_t read = ring, write = ring + (kConfig.stages - 1) * kConfig.stage_bytes();
    const auto load = [&](int step) {
      ReaderA::load(fragments_a[step % 2], read + lane_a, step);
      load_b(fragments_b[step % 2], read + lane_b, step);
      metadata.load(read + kBytesA + kBytesB, step);
    };
    const auto round = [&](int step) {
      ReaderA::round(fragments_a[step % 2]);
      round_b(fragments_b[step % 2]);
    };
    Accumulators partial;
    Accumulators& sums = kConfig.promotes() ? partial : accumulators;
    load(0);
    round(0);
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      promotion.begin(partial);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        copy(write, step);
        if (step + 1 == kSteps) turn(ring, read, write);
        // After the last block this reads a stage of zeros that nobody multiplies.
        load((step + 1) % kSteps);
        multiply_step(fragments_a[step % 2], fragments_b[step % 2], metadata, step, sums);
        round((step + 1) % kSteps);
      }
      promotion.end(partial, accumulators);
    }
  }

  // Any operands: one that lies in aligned chunks is copied, another is gathered element by
  // element, read before a step's products and written after them. Rolled up, to stay small, as far
  // as steps are the same instruction.
  __device__ static void multiply_any(const CpAsyncParams& params, LoaderA& a, LoaderB& b,
                                      Metadata& metadata, Promotion& promotion, std::uint32_t ring,
                                      int blocks, Accumulators& accumulators) {
    Element elements_a[kStepA][kChunk], elements_b[kStepB][kChunk];
    const auto fetch = [&](std::uint32_t stage, int step) {
#pragma unroll
      for (int i = 0; i < kStepA; ++i) {
        if (params.a_vector)
          a.copy(stage, step * kStepA + i);
        else
          a.fetch(step * kStepA + i, elements_a[i]);
      }
#pragma unroll
      for (int i = 0; i < kStepB; ++i) {
        if (params.b_vector)
          b.copy(stage + kBytesA, step * kStepB + i);
        else
          b.fetch(step * kStepB + i, elements_b[i]);
      }
      if (step == 0) metadata.copy(stage + kBytesA + kBytesB);
    };
    const auto put = [&](std::uint32_t stage, int step) {
#pragma unroll
      for (int i = 0; i < kStepA; ++i)
        if (!params.a_vector) a.put(stage, step * kStepA + i, elements_a[i]);
#pragma unroll
      for (int i = 0; i < kStepB; ++i)
        if (!params.b_vector) b.put(stage + kBytesA, step * kStepB + i, elements_b[i]);
    };
#pragma unroll 1
    for (int stage = 0; stage < kConfig.stages - 1; ++stage) {
#pragma unroll 1
      for (int step = 0; step < kSteps; ++step) {
        fetch(ring + stage * kConfig.stage_bytes(), step);
        put(ring + stage * kConfig.stage_bytes(), step);
      }
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<kConfig.stages - 2>();
    __syncthreads();

    const std::uint32_t lane_a = ReaderA::lane_offset(warp_row());
    const std::uint32_t lane_b = ReaderB::lane_offset(warp_col()) + kBytesA;
    std::uint32_t read = ring, write = ring + (kConfig.stages - 1) * kConfig.stage_bytes();
    Accumulators partial;
    Accumulators& sums = kConfig.promotes() ? partial : accumulators;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      promotion.begin(partial);
#pragma unroll(kConfig.sparse ? kSteps : 1)
      for (int step = 0; step < kSteps; ++step) {
        FragmentsA fragments_a;
        FragmentsB fragments_b;
        fetch(write, step);
        ReaderA::load(fragments_a, read + lane_a, step);
        load_b(fragments_b, read + lane_b, step);
        metadata.load(read + kBytesA + kBytesB, step);
        ReaderA::round(fragments_a);
        round_b(fragments_b);
        multiply_step(fragments_a, fragments_b, metadata, step, sums);
        put(write, step);
      }
      promotion.end(partial, accumulators);
      turn(ring, read, write);
    }
  }

  // The end of a block: its copies become a group, the next stage has landed for every thread, and
  // every warp is done with the slot that `write` moves to.
  __device__ static void turn(std::uint32_t ring, std::uint32_t& read, std::uint32_t& write) {
    ptx::cp_async_commit();
    ptx::cp_async_wait<kConfig.stages - 2>();
    __syncthreads();
    write = read;
    read += kConfig.stage_bytes();
    if (read == ring + kRingBytes) read = ring;
  }

  __device__ static void load_b(FragmentsB& b, std::uint32_t start, int step) {
#pragma unroll
    for (int i = 0; i < kStepsB; ++i) ReaderB::load(b[i], start, step * kStepsB + i);
  }

  __device__ static void round_b(FragmentsB& b) {
#pragma unroll
    for (int i = 0; i < kStepsB; ++i) ReaderB::round(b[i]);
  }

  __device__ static void multiply_step(const FragmentsA& a, const FragmentsB& b,
                                       const Metadata& metadata, int step,
                                       Accumulators& accumulators) {
    constexpr int kBlockRegisters = tile::registers<kConfig.accumulator>(8);
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
#pragma unroll
      for (int j = 0; j < kWarpN / 8; ++j) {
        Register* const sums = &accumulators[i][j * kBlockRegisters];
        const std::uint32_t* const first = &b[0][j / 2][j % 2 * 2];
        if constexpr (kConfig.sparse)
          ptx::mma_sparse<kConfig.input, kConfig.input_b>(
              sums, a[i], first, &b[1][j / 2][j % 2 * 2], metadata.words[step][i], step);
        else
          ptx::mma_sync<kConfig.input, kConfig.input_b>(sums, a[i], first);
      }
    }
  }
};

}  // namespace tcgemm::sm80
