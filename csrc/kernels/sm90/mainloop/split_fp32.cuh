// The mainloop of f32 operands in 16-bit parts (core/split_fp32.h): products of parts, small ones first,
// add up in the tensor cores over 32 or 64 of k and from there in f32 registers, rounded to
// nearest. Tensor cores truncate, which over a long k costs more than the parts hold.
//
//   f16   64 of k:  p1 p0, p0 p1  -> sum * 2^-11        p0 p0 -> sum    (few results: of 16, 32)
//   bf16  32 of k:  p2 p0, p1 p1, p0 p2, p1 p0, p0 p1, p0 p0 -> sum
//
// Tried on an H200, x torch's f32 at 2048, 4096 and 8192, without the passes: f16 128x256 4.5, 4.65
// and 4.3; without turns 4.2, 4.3 and 4.1; 128x128 4.3, 4.5 and 4.1; 128x192 fits 3072 (5.4, where
// 128x256 has 4.5). bf16 128x256 with 32 of k a stage 2.45, 2.55 and 2.45; 128x128 2.35, 2.4 and
// 2.3. All of it at the power cap, with 1.45 to 1.6 GHz.
//
// A chain, the products that add up to one sum, is kChunk columns wide: registers hold one sum
// beside the accumulators. Two warpgroups take turns chain by chain (turns.cuh).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "catalog.h"
#include "core/split_fp32.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/pingpong.cuh"
#include "kernels/sm90/producer.cuh"
#include "ptx/wgmma.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// Which parts are multiplied in a chain, over which steps of 16 of k, and what the sum counts.
struct Chain {
  struct TermPair {
    int a, b;
  } pairs[6];
  int count, first_step, steps;
  float factor;
};

// `deep`: of how many steps a chain of p0 p0 is. In one step tensor cores truncate hardly more than
// rounding does; in four, sums of equal signs lose 3 * 2^-24.
constexpr Chain chain(int terms, int main_steps, int index) {
  if (terms == kBf16Terms) return {{{2, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 0}}, 6, 0, 2, 1.0f};
  if (index == 0) return {{{1, 0}, {0, 1}}, 2, 0, 4, 1.0f / (1 << kLowShift)};
  return {{{0, 0}}, 1, (index - 1) * main_steps, main_steps, 1.0f};
}

constexpr int chains(int terms, int main_steps) {
  return terms == kF16Terms ? 1 + 4 / main_steps : 1;
}

template <GemmConfig kConfig>
struct SplitFp32Mainloop {
  static_assert(kConfig.promote == 1 && kConfig.m64_blocks == 1 && !kConfig.sparse &&
                !kConfig.block_scaled);
  static_assert((kConfig.input == DType::f16 && kConfig.terms == kF16Terms) ||
                (kConfig.input == DType::bf16 && kConfig.terms == kBf16Terms));
  // Columns of MN-major b lie in blocks of 64: 192 of them are chunks of 128 and of 64, not halves.
  static constexpr bool kEqualChunks = kConfig.n == 192 && major_b(kConfig.layout) == Major::K;
  static constexpr int kChunk = kEqualChunks ? 96 : kConfig.n < 128 ? kConfig.n : 128;
  // A warpgroup by itself adds one chain while the next is multiplied. The small tiles are for few
  // results, and have short chains.
  static constexpr bool kOverlaps = kConfig.warpgroups == 1;
  static constexpr int kMainSteps = !kOverlaps ? 4 : kConfig.n == 64 ? 1 : 2;
  static constexpr int kChains = chains(kConfig.terms, kMainSteps);
  static constexpr int kItems = (kConfig.n + kChunk - 1) / kChunk * kChains;  // of a stage
  static constexpr int kRowBytes = kConfig.row_bytes();
  static_assert(chain(kConfig.terms, kMainSteps, 0).steps * 32 == kRowBytes);
  static constexpr int kBlockBytes = 64 * kRowBytes;
  // What kChunk columns of b add to a descriptor, in either major.
  static constexpr std::uint64_t kChunkStep = kChunk * kRowBytes >> 4;

  using PipelineState = tile::PipelineState<kConfig.stages>;
  using PingPong = sm90::PingPong<kConfig>;
  using Register = float;
  static constexpr int kRegisters = kConfig.n / 2;
  using Accumulators = float[1][kRegisters];
  // The columns of an item's chunk, and the registers of its sum.
  template <int kItem>
  static constexpr int kColumns = std::min(kChunk, kConfig.n - kItem / kChains * kChunk);
  template <int kItem>
  using Partial = float[kColumns<kItem> / 2];

  // Where registers allow for it, sums of some blocks are added up by themselves: results are
  // rounded less often while they are large.
  static constexpr bool kTwoLevelSum = kConfig.n <= (kOverlaps ? 64 : 128);

  // Is this the kernel whose parts were made?
  __device__ static bool decided(const TmaParams& params) {
    return ((*params.split.decision & kUseBf16) != 0) == (kConfig.terms == kBf16Terms);
  }

  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState& state,
                                  int k_blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators) {
    // By index: what a range-for clears is cleared, and kept, in memory.
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) accumulators[0][i] = 0;
    float totals[kTwoLevelSum ? kRegisters : 1] = {};
    const int k_blocks_per_sum =
        k_blocks > 48 ? 8 : 4;  // about the root of `blocks`, a power of two
    int k_block = 0;
    // There is at least one.
#pragma unroll 1
    do {
      const int stage = state.stage;
      [&]<int... kItem>(std::integer_sequence<int, kItem...>) {
        if constexpr (kOverlaps) {
          Partial<0> partial[2];
          ptx::mbarrier_wait(shared.barriers.full(stage), state.parity);
          (overlap_item<kItem>(shared.stage(stage), warpgroup, partial, accumulators[0]), ...);
          ptx::wgmma_wait<0>();
          consumer_release<kConfig>(shared, stage, cluster);
          promote<kItems - 1>(partial[(kItems - 1) % 2], accumulators[0]);
          state.advance();
        } else {
          (multiply_item<kItem>(shared, state, stage, warpgroup, cluster, accumulators[0]), ...);
        }
      }(std::make_integer_sequence<int, kItems>{});
      if constexpr (kTwoLevelSum) {
        if ((k_block & (k_blocks_per_sum - 1)) == k_blocks_per_sum - 1) {
#pragma unroll
          for (int i = 0; i < kRegisters; ++i) {
            totals[i] += accumulators[0][i];
            accumulators[0][i] = 0;
          }
        }
      }
    } while (++k_block < k_blocks);
    if constexpr (kTwoLevelSum) {
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) accumulators[0][i] += totals[i];
    }
  }

 private:
  // A chain of a chunk of a stage, in one turn.
  template <int kItem>
  __device__ static void multiply_item(const SharedStorage<kConfig>& shared, PipelineState& state,
                                       int stage, int warpgroup, Cluster cluster,
                                       float (&accumulators)[kRegisters]) {
    Partial<kItem> partial;
    PingPong::wait(warpgroup);
    if constexpr (kItem == 0) {
      ptx::mbarrier_wait(shared.barriers.full(stage), state.parity);
      state.advance();
    }
    multiply_chain<kItem>(shared.stage(stage), warpgroup, partial);
    ptx::wgmma_wait<1>();
    PingPong::arrive(warpgroup);
    ptx::wgmma_wait<0>();
    if constexpr (kItem == kItems - 1) consumer_release<kConfig>(shared, stage, cluster);
    promote<kItem>(partial, accumulators);
    ptx::wgmma_results(accumulators);  // before the turn is asked for
  }

  // Issues a chain, and adds the one before, which has finished by then.
  template <int kItem>
  __device__ static void overlap_item(std::uint32_t stage, int warpgroup,
                                      Partial<kItem> (&partial)[2],
                                      float (&accumulators)[kRegisters]) {
    multiply_chain<kItem>(stage, warpgroup, partial[kItem % 2]);
    if constexpr (kItem > 0) {
      ptx::wgmma_wait<1>();
      promote<kItem - 1>(partial[(kItem - 1) % 2], accumulators);
    }
  }

  template <int kItem>
  __device__ static void promote(Partial<kItem>& partial, float (&accumulators)[kRegisters]) {
    constexpr float kFactor = chain(kConfig.terms, kMainSteps, kItem % kChains).factor;
    ptx::wgmma_results(partial);
    float* sums = accumulators + kItem / kChains * (kChunk / 2);
#pragma unroll
    for (int i = 0; i < kColumns<kItem> / 2; ++i)
      sums[i] = kFactor == 1 ? sums[i] + partial[i] : __fmaf_rn(partial[i], kFactor, sums[i]);
  }

  // Issues the products of a chain, in two groups where warpgroups take turns.
  template <int kItem>
  __device__ static void multiply_chain(std::uint32_t stage, int warpgroup,
                                        Partial<kItem>& partial) {
    constexpr Chain kChain = chain(kConfig.terms, kMainSteps, kItem % kChains);
    constexpr int kMmas = kChain.count * kChain.steps;
    const std::uint64_t a =
        ptx::wgmma_descriptor<major_a(kConfig.layout), kRowBytes>(stage + warpgroup * kBlockBytes);
    const std::uint64_t b = ptx::wgmma_descriptor<major_b(kConfig.layout), kRowBytes>(
                                stage + TmaProducer<kConfig>::kBytesA) +
                            kItem / kChains * kChunkStep;
    ptx::wgmma_fence();
    [&]<int... i>(std::integer_sequence<int, i...>) {
      (multiply_step<kItem, i>(a, b, partial), ...);
    }(std::make_integer_sequence<int, kMmas>{});
  }

  template <int kItem, int i>
  __device__ static void multiply_step(std::uint64_t a, std::uint64_t b, Partial<kItem>& partial) {
    constexpr Chain kChain = chain(kConfig.terms, kMainSteps, kItem % kChains);
    constexpr int kMmas = kChain.count * kChain.steps;
    constexpr Chain::TermPair kPair = kChain.pairs[i / kChain.steps];
    constexpr std::uint64_t kStep = kChain.first_step + i % kChain.steps;
    constexpr std::uint64_t kStepA = kPair.a * (TmaProducer<kConfig>::kTermBytesA >> 4) +
                                     kStep * ptx::kDescriptorStep<major_a(kConfig.layout)>;
    constexpr std::uint64_t kStepB = kPair.b * (TmaProducer<kConfig>::kTermBytesB >> 4) +
                                     kStep * ptx::kDescriptorStep<major_b(kConfig.layout)>;
    ptx::wgmma<wgmma_type<kConfig>(kColumns<kItem>)>(partial, a + kStepA, b + kStepB, i != 0);
    if constexpr ((i + 1 == kMmas / 2 && !kOverlaps) || i + 1 == kMmas) ptx::wgmma_commit();
  }
};

}  // namespace tcgemm::sm90
