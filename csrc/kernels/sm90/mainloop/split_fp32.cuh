// The sm_90a mainloop of split-FP32 GEMMs: f32 operands as 16-bit terms (core/split_fp32.h).
// docs/dev/kernels/sm90-split-fp32.md says what was tried.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "catalog.h"
#include "core/split_fp32.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/order_barrier.cuh"
#include "kernels/sm90/producer.cuh"
#include "kernels/sm90/rescale.cuh"
#include "ptx/uniform.cuh"
#include "ptx/wgmma.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The pairs of terms that a chain multiplies, its steps of 16 of k, and the factor of its sum.
struct Chain {
  struct TermPair {
    int a, b;
  } pairs[6];
  int count, first_step, steps;
  float factor;
};

// `main_steps`: steps of a chain of p0 p0. In one step tensor cores truncate hardly more than
// rounding does; in four, sums of equal signs lose 3 * 2^-24.
constexpr Chain chain(int terms, int main_steps, int index) {
  if (terms == kBf16Terms) return {{{2, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 0}}, 6, 0, 2, 1.0f};
  if (index == 0) return {{{1, 0}, {0, 1}}, 2, 0, 4, 1.0f / (1 << kLowShift)};
  return {{{0, 0}}, 1, (index - 1) * main_steps, main_steps, 1.0f};
}

constexpr int chains(int terms, int main_steps) {
  return terms == kF16Terms ? 1 + 4 / main_steps : 1;
}

// Products of terms, small ones first, accumulate in the tensor cores over 32 or 64 of k. From
// there they are promoted to f32 registers, rounded to nearest: tensor cores truncate, and over a
// long k truncation costs more than the terms hold.
//
//   f16   64 of k:  p1 p0, p0 p1  -> sum * 2^-11        p0 p0 -> sum    (small tiles: of 16, 32)
//   bf16  32 of k:  p2 p0, p1 p1, p0 p2, p1 p0, p0 p1, p0 p0 -> sum
//
// A chain is the sequence of WGMMAs that accumulate one such sum. It is kChunk columns wide,
// because registers hold one sum beside the accumulators. Two warpgroups alternate chain by chain
// (order_barrier.cuh).
template <GemmConfig kConfig>
struct SplitFp32Mainloop {
  static_assert(kConfig.mainloop == Mainloop::split_fp32 && kConfig.m64_blocks == 1);
  static_assert(kConfig.input == DType::f16 || kConfig.input == DType::bf16);
  // MN-major b has blocks of 64 columns, so 192 columns are chunks of 128 and 64, not two of 96.
  static constexpr bool kEqualChunks = kConfig.n == 192 && major_b(kConfig.layout) == Major::K;
  static constexpr int kChunk = kEqualChunks ? 96 : kConfig.n < 128 ? kConfig.n : 128;
  // A single warpgroup promotes one chain while WGMMA computes the next. The small tiles, for small
  // results, have short chains.
  static constexpr bool kOverlaps = kConfig.warpgroups == 1;
  static constexpr int kMainSteps = !kOverlaps ? 4 : kConfig.n == 64 ? 1 : 2;
  static constexpr int kChains = chains(kConfig.terms(), kMainSteps);
  static constexpr int kItems = (kConfig.n + kChunk - 1) / kChunk * kChains;  // chains of a stage
  static constexpr int kRowBytes = kConfig.row_bytes();
  static_assert(chain(kConfig.terms(), kMainSteps, 0).steps * 32 == kRowBytes);
  static constexpr int kBlockBytes = 64 * kRowBytes;
  // The offset of kChunk columns of b in a descriptor, for either major.
  static constexpr std::uint64_t kChunkStep = kChunk * kRowBytes >> 4;

  using PipelineState = tile::PipelineState<kConfig.stages>;
  using OrderBarrier = sm90::OrderBarrier<kConfig>;
  using Rescale = sm90::Rescale<kConfig.n>;  // runs before the epilogue
  using Register = float;
  static constexpr int kRegisters = kConfig.n / 2;
  using Accumulators = float[1][kRegisters];
  // The columns of an item's chunk, and the registers of its sum.
  template <int kItem>
  static constexpr int kColumns = std::min(kChunk, kConfig.n - kItem / kChains * kChunk);
  template <int kItem>
  using Partial = float[kColumns<kItem> / 2];

  // Where registers allow, some k-blocks are summed separately first: large sums are then rounded
  // less often.
  static constexpr bool kTwoLevelSum = kConfig.n <= (kOverlaps ? 64 : 128);

  // True if the decision chose the terms of this kernel.
  __device__ static bool decided(const TmaParams& params) {
    return ((*params.split.decision & kUseBf16) != 0) == (kConfig.terms() == kBf16Terms);
  }

  template <class Meanwhile>
  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState state,
                                  int k_blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators, const Meanwhile& meanwhile) {
    meanwhile();
    // A range-for would make the compiler clear, and keep, the accumulators in local memory.
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) accumulators[0][i] = 0;
    float totals[kTwoLevelSum ? kRegisters : 1] = {};
    const int k_blocks_per_sum = k_blocks > 48 ? 8 : 4;  // about sqrt(k_blocks), a power of two
    int k_block = 0;
    warpgroup = ptx::uniform(warpgroup);
    // A tile has at least one k-block.
#pragma unroll 1
    do {
      const int stage = state.stage;
      const std::uint32_t address = shared.uniform_stage(stage);
      [&]<int... kItem>(std::integer_sequence<int, kItem...>) {
        if constexpr (kOverlaps) {
          Partial<0> partial[2];
          ptx::mbarrier_wait(shared.barriers.full(stage), state.parity);
          (overlap_item<kItem>(address, warpgroup, partial, accumulators[0]), ...);
          ptx::wgmma_wait<0>();
          consumer_release<kConfig>(shared, stage, cluster);
          promote<kItems - 1>(partial[(kItems - 1) % 2], accumulators[0]);
          state.advance();
        } else {
          (multiply_item<kItem>(shared, state, stage, address, warpgroup, cluster, accumulators[0]),
           ...);
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
  // Computes one chain of one chunk of a stage, between wait() and the next wait().
  template <int kItem>
  __device__ static void multiply_item(const SharedStorage<kConfig>& shared, PipelineState& state,
                                       int stage, std::uint32_t address, int warpgroup,
                                       Cluster cluster, float (&accumulators)[kRegisters]) {
    Partial<kItem> partial;
    OrderBarrier::wait(warpgroup);
    if constexpr (kItem == 0) {
      ptx::mbarrier_wait(shared.barriers.full(stage), state.parity);
      state.advance();
    }
    multiply_chain<kItem>(address, warpgroup, partial);
    ptx::wgmma_wait<1>();
    OrderBarrier::arrive(warpgroup);
    ptx::wgmma_wait<0>();
    if constexpr (kItem == kItems - 1) consumer_release<kConfig>(shared, stage, cluster);
    promote<kItem>(partial, accumulators);
    ptx::wgmma_results(accumulators);  // completes promotion before wait()
  }

  // Issues a chain, and promotes the previous one, which has completed by then.
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
    constexpr float kFactor = chain(kConfig.terms(), kMainSteps, kItem % kChains).factor;
    ptx::wgmma_results(partial);
    float* sums = accumulators + kItem / kChains * (kChunk / 2);
#pragma unroll
    for (int i = 0; i < kColumns<kItem> / 2; ++i)
      sums[i] = kFactor == 1 ? sums[i] + partial[i] : __fmaf_rn(partial[i], kFactor, sums[i]);
  }

  // Issues the WGMMAs of a chain, as two groups where warpgroups alternate.
  template <int kItem>
  __device__ static void multiply_chain(std::uint32_t stage, int warpgroup,
                                        Partial<kItem>& partial) {
    constexpr Chain kChain = chain(kConfig.terms(), kMainSteps, kItem % kChains);
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
    constexpr Chain kChain = chain(kConfig.terms(), kMainSteps, kItem % kChains);
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
