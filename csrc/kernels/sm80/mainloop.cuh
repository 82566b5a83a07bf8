// The sm_80 mainloop: all threads feed the ring with cp.async, all warps multiply with mma.sync.
//
//   stage:  a: tile_m rows | b: tile_n rows, 128 bytes of k with the 128-byte swizzle (loader.cuh)
//   tile:   2 rows of warps; each warp owns tile_m / 2 x 2 * tile_n / warps of the result
//
// While stage s is multiplied, stages s + 1 .. s + stages - 1 arrive, the last of them in the slot
// that was read before. One barrier a stage says both: it has arrived, and that slot is free.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "isa/instructions.h"
#include "kernels/sm80/loader.cuh"
#include "kernels/sm80/promotion.cuh"
#include "kernels/sm80/reader.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma_sync.cuh"
#include "tile/fragment.cuh"

namespace tcgemm::sm80 {

template <Kernel kRow>
struct Mainloop {
  static_assert(kRow.parts == 1 && !kRow.sparse && kRow.source_of_a == SourceOfA::shared,
                "the mainloop serves dense products with both operands in memory");
  static constexpr const isa::Instruction* kInstruction =
      isa::find(isa::Family::mma, kRow.input, kRow.input_b, kRow.accumulator);
  static_assert(kInstruction != nullptr && kInstruction->arch == kRow.arch);
  static_assert(kInstruction->m == 16 && kInstruction->n == 8);
  static_assert(kInstruction->k * bits(kRow.input) == 256 &&
                bits(kRow.input_b) == bits(kRow.input));

  static constexpr int kWarps = kRow.threads() / 32;
  static constexpr int kWarpM = kRow.tile_m() / 2;
  static constexpr int kWarpN = kRow.tile_n() * 2 / kWarps;
  static constexpr int kSteps = kRow.tile_k() / kInstruction->k;
  static_assert(kSteps % 2 == 0, "fragments alternate between two buffers");
  static constexpr int kBytesA = kRow.tile_m() * 128;
  static constexpr int kRingBytes = kRow.stages * kRow.stage_bytes();
  static constexpr Major kMajorA = major_a(kRow.layout), kMajorB = major_b(kRow.layout);

  using LoaderA = Loader<kRow.input, kMajorA, kRow.tile_m(), kRow.threads()>;
  using LoaderB = Loader<kRow.input_b, kMajorB, kRow.tile_n(), kRow.threads()>;
  static constexpr int kStepA = LoaderA::kCopies / kSteps, kStepB = LoaderB::kCopies / kSteps;
  static_assert(kStepA * kSteps == LoaderA::kCopies && kStepB * kSteps == LoaderB::kCopies);

  using ReaderA = Reader<kRow.input, kMajorA, Order::mn_first, kWarpM, LoaderA::kBlockBytes>;
  using ReaderB = Reader<kRow.input_b, kMajorB, Order::k_first, kWarpN, LoaderB::kBlockBytes>;
  using FragmentsA = typename ReaderA::Fragments;
  using FragmentsB = typename ReaderB::Fragments;
  using Element = sm80::Element<kRow.input>;
  static constexpr int kChunk = LoaderA::kChunk;

  using Register = tile::Register<kRow.accumulator>;
  static constexpr int kFragments = kWarpM / 16;
  static constexpr int kRegisters = tile::registers<kRow.accumulator>(kWarpN);
  using Accumulators = Register[kFragments][kRegisters];
  using Promotion = sm80::Promotion<kRow, kWarpM, kWarpN>;

  // Of the warp, in the tile.
  __device__ static int warp_row() { return threadIdx.x / 32 % 2 * kWarpM; }
  __device__ static int warp_col() { return threadIdx.x / 64 * kWarpN; }

  // The products of the tile at (row, col) into `accumulators`, which need no clearing. `ring` has
  // 1024-byte alignment. On return this thread's copies have landed, but other warps may still be
  // reading the ring.
  __device__ static void multiply(const Sm80Params& params, std::uint32_t ring, int row, int col,
                                  int batch, Accumulators& accumulators) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
#pragma unroll
      for (int j = 0; j < kRegisters; ++j) accumulators[i][j] = 0;

    const int blocks = params.extent.k / kRow.tile_k() + (params.extent.k % kRow.tile_k() != 0);
    if (blocks == 0) return;
    LoaderA a(params.a, params.a.stride_row, params.a.stride_col, row, params.extent.m,
              params.extent.k, batch);
    LoaderB b(params.b, params.b.stride_col, params.b.stride_row, col, params.extent.n,
              params.extent.k, batch);
    Promotion promotion(params, row + warp_row(), col + warp_col(), batch);
    const int major_a = kMajorA == Major::K ? params.extent.k : params.extent.m;
    const int major_b = kMajorB == Major::K ? params.extent.k : params.extent.n;
    if (params.a_vector && params.b_vector && (major_a | major_b) % kChunk == 0)
      multiply_whole(a, b, promotion, ring, blocks, accumulators);
    else
      multiply_any(params, a, b, promotion, ring, blocks, accumulators);
    ptx::cp_async_wait<0>();
  }

  // Both operands in whole chunks of 16 bytes. Fragments of the next step are read while this one
  // is multiplied, and the copies are spread over the steps.
  __device__ static void multiply_whole(LoaderA& a, LoaderB& b, Promotion& promotion,
                                        std::uint32_t ring, int blocks,
                                        Accumulators& accumulators) {
    const auto copy = [&](std::uint32_t stage, int step) {
#pragma unroll
      for (int i = 0; i < kStepA; ++i) a.copy_whole(stage, step * kStepA + i);
#pragma unroll
      for (int i = 0; i < kStepB; ++i) b.copy_whole(stage + kBytesA, step * kStepB + i);
    };
#pragma unroll 1
    for (int stage = 0; stage < kRow.stages - 1; ++stage) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) copy(ring + stage * kRow.stage_bytes(), step);
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<kRow.stages - 2>();
    __syncthreads();

    FragmentsA fragments_a[2];
    FragmentsB fragments_b[2];
    const std::uint32_t lane_a = ReaderA::lane_offset(warp_row());
    const std::uint32_t lane_b = ReaderB::lane_offset(warp_col()) + kBytesA;
    std::uint32_t read = ring, write = ring + (kRow.stages - 1) * kRow.stage_bytes();
    const auto load = [&](int step) {
      ReaderA::load(fragments_a[step % 2], read + lane_a, step);
      ReaderB::load(fragments_b[step % 2], read + lane_b, step);
    };
    const auto round = [&](int step) {
      ReaderA::round(fragments_a[step % 2]);
      ReaderB::round(fragments_b[step % 2]);
    };
    Accumulators partial;
    Accumulators& sums = kRow.promotes() ? partial : accumulators;
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
        multiply_step(fragments_a[step % 2], fragments_b[step % 2], sums);
        round((step + 1) % kSteps);
      }
      promotion.end(partial, accumulators);
    }
  }

  // Any operands: one that lies in aligned chunks is copied, another is gathered element by
  // element, read before a step's products and written after them. Rolled up, to stay small.
  __device__ static void multiply_any(const Sm80Params& params, LoaderA& a, LoaderB& b,
                                      Promotion& promotion, std::uint32_t ring, int blocks,
                                      Accumulators& accumulators) {
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
    for (int stage = 0; stage < kRow.stages - 1; ++stage) {
#pragma unroll 1
      for (int step = 0; step < kSteps; ++step) {
        fetch(ring + stage * kRow.stage_bytes(), step);
        put(ring + stage * kRow.stage_bytes(), step);
      }
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<kRow.stages - 2>();
    __syncthreads();

    const std::uint32_t lane_a = ReaderA::lane_offset(warp_row());
    const std::uint32_t lane_b = ReaderB::lane_offset(warp_col()) + kBytesA;
    std::uint32_t read = ring, write = ring + (kRow.stages - 1) * kRow.stage_bytes();
    Accumulators partial;
    Accumulators& sums = kRow.promotes() ? partial : accumulators;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      promotion.begin(partial);
#pragma unroll 1
      for (int step = 0; step < kSteps; ++step) {
        FragmentsA fragments_a;
        FragmentsB fragments_b;
        fetch(write, step);
        ReaderA::load(fragments_a, read + lane_a, step);
        ReaderB::load(fragments_b, read + lane_b, step);
        ReaderA::round(fragments_a);
        ReaderB::round(fragments_b);
        multiply_step(fragments_a, fragments_b, sums);
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
    ptx::cp_async_wait<kRow.stages - 2>();
    __syncthreads();
    write = read;
    read += kRow.stage_bytes();
    if (read == ring + kRingBytes) read = ring;
  }

  __device__ static void multiply_step(const FragmentsA& a, const FragmentsB& b,
                                       Accumulators& accumulators) {
    constexpr int kBlockRegisters = tile::registers<kRow.accumulator>(8);
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
#pragma unroll
      for (int j = 0; j < kWarpN / 8; ++j)
        ptx::mma_sync<kRow.input, kRow.input_b>(&accumulators[i][j * kBlockRegisters], a[i],
                                                &b[j / 2][j % 2 * 2]);
    }
  }
};

}  // namespace tcgemm::sm80
