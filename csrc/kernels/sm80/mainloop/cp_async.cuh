// The mainloop of sm_80 and sm_89, for dense, promoted and 2:4 configs: all threads fill the
// pipeline stages with cp.async, all warps issue mma.sync or mma.sp.
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
#include "tile/groups.cuh"

namespace tcgemm::sm80 {

// The content of a stage, and the part of each warp:
//
//   stage:  a: tile_m rows | b: tile_n rows; 128 bytes of k, 128-byte swizzle (producer.cuh)
//   tile:   2 rows of warps; each warp owns tile_m / 2 x 2 * tile_n / warps of the result
//
// With a 2:4 operand (core/sparse.h) a stage holds the values of a, half as many, and the metadata
// (sparse.cuh). A step of mma.sp reads as many bytes of a as a dense one, and twice as many of b.
//
// While stage s is multiplied, stages s + 1 .. s + stages - 1 are in flight. The last of them
// replaces the stage that was read before s. One barrier a k-block shows that the next stage has
// arrived and that the previous one is free.
template <GemmConfig kConfig>
struct CpAsyncMainloop {
  static_assert(kConfig.mainloop == Mainloop::dense || kConfig.promotes() || kConfig.is_sparse());
  static_assert(!kConfig.is_sparse() ||
                (!kConfig.promotes() && major_a(kConfig.layout) == Major::K));
  static constexpr const isa::Instruction* kInstruction =
      isa::find(kConfig.is_sparse() ? isa::InstructionKind::mma_sparse : isa::InstructionKind::mma,
                kConfig.input, kConfig.input_b, kConfig.accumulator);
  static_assert(kInstruction != nullptr && kInstruction->arch == kConfig.arch);
  static_assert(kInstruction->m == 16 && kInstruction->n == 8);
  static constexpr int kStepsB =
      kConfig.is_sparse() ? 2 : 1;  // steps of 32 bytes of k of b for one of a
  static_assert(kInstruction->k * bits(kConfig.input) == 256 * kStepsB &&
                bits(kConfig.input_b) == bits(kConfig.input));

  static constexpr int kWarps = kConfig.threads() / 32;
  static constexpr int kWarpM = kConfig.tile_m() / 2;
  static constexpr int kWarpN = kConfig.tile_n() * 2 / kWarps;
  static constexpr int kSteps = kConfig.tile_k() / kInstruction->k;
  static_assert(kSteps % 2 == 0, "fragments alternate between two buffers");
  static constexpr int kBytesA = kConfig.tile_m() * kConfig.row_bytes_a();
  static constexpr int kBytesB = kConfig.tile_n() * kConfig.row_bytes();
  static constexpr int kStagesBytes = kConfig.stages * kConfig.stage_bytes();
  static constexpr Major kMajorA = major_a(kConfig.layout), kMajorB = major_b(kConfig.layout);

  using ProducerA = CpAsyncProducer<kConfig.input, kMajorA, kConfig.tile_m(), kConfig.threads(),
                                    kConfig.is_sparse()>;
  using ProducerB = CpAsyncProducer<kConfig.input_b, kMajorB, kConfig.tile_n(), kConfig.threads()>;
  static constexpr int kStepA = ProducerA::kCopies / kSteps, kStepB = ProducerB::kCopies / kSteps;
  static_assert(kStepA * kSteps == ProducerA::kCopies && kStepB * kSteps == ProducerB::kCopies);

  using LoaderA = FragmentLoader<kConfig.input, kMajorA, MatrixOrder::mn_first, kWarpM,
                                 ProducerA::kBlockBytes, kConfig.is_sparse()>;
  using LoaderB = FragmentLoader<kConfig.input_b, kMajorB, MatrixOrder::k_first, kWarpN,
                                 ProducerB::kBlockBytes>;
  using FragmentsA = typename LoaderA::Fragments;
  using FragmentsB = typename LoaderB::Fragments[kStepsB];
  using Element = sm80::Element<kConfig.input>;
  static constexpr int kChunk = ProducerA::kChunk;

  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kFragments = kWarpM / 16;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kWarpN);
  using Accumulators = Register[kFragments][kRegisters];
  using Promotion = sm80::Promotion<kConfig, kWarpM, kWarpN>;
  using SparseMetadata = sm80::SparseMetadata<kConfig, kFragments>;

  // Origin of the warp in the tile.
  __device__ static int warp_row() { return threadIdx.x / 32 % 2 * kWarpM; }
  __device__ static int warp_col() { return threadIdx.x / 64 * kWarpN; }

  // k in memory: elements, or bytes of a sub-byte type.
  __device__ static int stored_k(const Extent& extent) {
    if constexpr (is_subbyte(kConfig.input))
      return static_cast<int>(bytes_of(extent.k, kConfig.input));
    else
      return extent.k;
  }

  // Computes the tile at (row, col) into `accumulators`, which it clears first. `stages` is
  // 1024-byte aligned. On return the copies of this thread have completed, but other warps may
  // still read the stages.
  __device__ static void multiply(const CpAsyncParams& params, const Extent& extent, int k_begin,
                                  std::uint32_t stages, int row, int col, int batch,
                                  Accumulators& accumulators) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
#pragma unroll
      for (int j = 0; j < kRegisters; ++j) accumulators[i][j] = 0;

    const int k_blocks = extent.k / kConfig.tile_k() + (extent.k % kConfig.tile_k() != 0);
    if (k_blocks == 0) return;
    const int stored_k_a =
        kConfig.is_sparse() ? static_cast<int>(value_columns(extent.k, pattern_of(kConfig.input)))
                            : stored_k(extent);
    const TensorRef from_a = tile::from_k<kConfig>(params.a, params.a.stride_col, k_begin);
    const TensorRef from_b = tile::from_k<kConfig>(params.b, params.b.stride_row, k_begin);
    ProducerA a(from_a, from_a.stride_row, from_a.stride_col, row, extent.m, stored_k_a, batch);
    ProducerB b(from_b, from_b.stride_col, from_b.stride_row, col, extent.n, stored_k(extent),
                batch);
    Promotion promotion(params, row + warp_row(), col + warp_col(), batch);
    SparseMetadata metadata(params.sparse, row, warp_row(), k_blocks);
    const int major_a = kMajorA == Major::K ? stored_k_a : params.extent.m;
    const int major_b = kMajorB == Major::K ? stored_k(extent) : params.extent.n;
    if (params.a_vector && params.b_vector && (major_a | major_b) % kChunk == 0)
      multiply_vectors(a, b, metadata, promotion, stages, k_blocks, accumulators);
    else
      multiply_any(params, a, b, metadata, promotion, stages, k_blocks, accumulators);
    ptx::cp_async_wait<0>();
  }

  // The path for operands in full chunks of 16 bytes. Fragments of the next step are loaded while
  // the current one is multiplied, and the copies are spread over the steps.
  __device__ static void multiply_vectors(ProducerA& a, ProducerB& b, SparseMetadata& metadata,
                                          Promotion& promotion, std::uint32_t stages, int k_blocks,
                                          Accumulators& accumulators) {
    const auto copy = [&](std::uint32_t stage, int step) {
#pragma unroll
      for (int i = 0; i < kStepA; ++i) a.copy_full(stage, step * kStepA + i);
#pragma unroll
      for (int i = 0; i < kStepB; ++i) b.copy_full(stage + kBytesA, step * kStepB + i);
      if (step == 0) metadata.copy(stage + kBytesA + kBytesB);
    };
#pragma unroll 1
    for (int stage = 0; stage < kConfig.stages - 1; ++stage) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) copy(stages + stage * kConfig.stage_bytes(), step);
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<kConfig.stages - 2>();
    __syncthreads();

    FragmentsA fragments_a[2];
    FragmentsB fragments_b[2];
    const std::uint32_t lane_a = LoaderA::lane_offset(warp_row());
    const std::uint32_t lane_b = LoaderB::lane_offset(warp_col()) + kBytesA;
    std::uint32_t read = stages, write = stages + (kConfig.stages - 1) * kConfig.stage_bytes();
    const auto load = [&](int step) {
      LoaderA::load(fragments_a[step % 2], read + lane_a, step);
      load_b(fragments_b[step % 2], read + lane_b, step);
      metadata.load(read + kBytesA + kBytesB, step);
    };
    const auto round = [&](int step) {
      LoaderA::round_tf32(fragments_a[step % 2]);
      round_tf32_b(fragments_b[step % 2]);
    };
    Accumulators partial;
    Accumulators& sums = kConfig.promotes() ? partial : accumulators;
    load(0);
    round(0);
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
      promotion.begin(partial);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        copy(write, step);
        if (step + 1 == kSteps) advance_stage(stages, read, write);
        // After the last k-block this reads a stage of zeros, which is not multiplied.
        load((step + 1) % kSteps);
        multiply_step(fragments_a[step % 2], fragments_b[step % 2], metadata, step, sums);
        round((step + 1) % kSteps);
      }
      promotion.end(partial, accumulators);
    }
  }

  // The path for any operands. An operand in aligned chunks is copied by cp.async. Another one is
  // gathered element by element: loaded before the mma of a step and stored after it. The loop over
  // steps stays rolled to keep the code small, except for 2:4, whose steps are different
  // instructions.
  __device__ static void multiply_any(const CpAsyncParams& params, ProducerA& a, ProducerB& b,
                                      SparseMetadata& metadata, Promotion& promotion,
                                      std::uint32_t stages, int k_blocks,
                                      Accumulators& accumulators) {
    Element elements_a[kStepA][kChunk], elements_b[kStepB][kChunk];
    const auto fetch = [&](std::uint32_t stage, int step) {
#pragma unroll
      for (int i = 0; i < kStepA; ++i) {
        if (params.a_vector)
          a.copy(stage, step * kStepA + i);
        else
          a.load_elements(step * kStepA + i, elements_a[i]);
      }
#pragma unroll
      for (int i = 0; i < kStepB; ++i) {
        if (params.b_vector)
          b.copy(stage + kBytesA, step * kStepB + i);
        else
          b.load_elements(step * kStepB + i, elements_b[i]);
      }
      if (step == 0) metadata.copy(stage + kBytesA + kBytesB);
    };
    const auto store = [&](std::uint32_t stage, int step) {
#pragma unroll
      for (int i = 0; i < kStepA; ++i)
        if (!params.a_vector) a.store(stage, step * kStepA + i, elements_a[i]);
#pragma unroll
      for (int i = 0; i < kStepB; ++i)
        if (!params.b_vector) b.store(stage + kBytesA, step * kStepB + i, elements_b[i]);
    };
#pragma unroll 1
    for (int stage = 0; stage < kConfig.stages - 1; ++stage) {
#pragma unroll 1
      for (int step = 0; step < kSteps; ++step) {
        fetch(stages + stage * kConfig.stage_bytes(), step);
        store(stages + stage * kConfig.stage_bytes(), step);
      }
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<kConfig.stages - 2>();
    __syncthreads();

    const std::uint32_t lane_a = LoaderA::lane_offset(warp_row());
    const std::uint32_t lane_b = LoaderB::lane_offset(warp_col()) + kBytesA;
    std::uint32_t read = stages, write = stages + (kConfig.stages - 1) * kConfig.stage_bytes();
    Accumulators partial;
    Accumulators& sums = kConfig.promotes() ? partial : accumulators;
#pragma unroll 1
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
      promotion.begin(partial);
#pragma unroll(kConfig.is_sparse() ? kSteps : 1)
      for (int step = 0; step < kSteps; ++step) {
        FragmentsA fragments_a;
        FragmentsB fragments_b;
        fetch(write, step);
        LoaderA::load(fragments_a, read + lane_a, step);
        load_b(fragments_b, read + lane_b, step);
        metadata.load(read + kBytesA + kBytesB, step);
        LoaderA::round_tf32(fragments_a);
        round_tf32_b(fragments_b);
        multiply_step(fragments_a, fragments_b, metadata, step, sums);
        store(write, step);
      }
      promotion.end(partial, accumulators);
      advance_stage(stages, read, write);
    }
  }

  // Ends a k-block: commits its copies as a group, waits until the next stage has arrived for all
  // threads and until all warps have read the stage that `write` moves to.
  __device__ static void advance_stage(std::uint32_t stages, std::uint32_t& read,
                                       std::uint32_t& write) {
    ptx::cp_async_commit();
    ptx::cp_async_wait<kConfig.stages - 2>();
    __syncthreads();
    write = read;
    read += kConfig.stage_bytes();
    if (read == stages + kStagesBytes) read = stages;
  }

  __device__ static void load_b(FragmentsB& b, std::uint32_t start, int step) {
#pragma unroll
    for (int i = 0; i < kStepsB; ++i) LoaderB::load(b[i], start, step * kStepsB + i);
  }

  __device__ static void round_tf32_b(FragmentsB& b) {
#pragma unroll
    for (int i = 0; i < kStepsB; ++i) LoaderB::round_tf32(b[i]);
  }

  __device__ static void multiply_step(const FragmentsA& a, const FragmentsB& b,
                                       const SparseMetadata& metadata, int step,
                                       Accumulators& accumulators) {
    constexpr int kBlockRegisters = tile::registers<kConfig.accumulator>(8);
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
#pragma unroll
      for (int j = 0; j < kWarpN / 8; ++j) {
        Register* const sums = &accumulators[i][j * kBlockRegisters];
        const std::uint32_t* const first = &b[0][j / 2][j % 2 * 2];
        if constexpr (kConfig.is_sparse())
          ptx::mma_sparse<kConfig.input, kConfig.input_b>(
              sums, a[i], first, &b[1][j / 2][j % 2 * 2], metadata.words[step][i], step);
        else
          ptx::mma_sync<kConfig.input, kConfig.input_b>(sums, a[i], first);
      }
    }
  }
};

}  // namespace tcgemm::sm80
