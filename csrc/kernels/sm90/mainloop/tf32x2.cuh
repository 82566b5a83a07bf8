// The sm_90a mainloop of FP32 operands as two TF32 terms each (core/split_fp32.h), which the kernel
// makes itself: those of a in registers, those of b in shared memory (term_writer.cuh). So a, which
// is large, is read once. docs/dev/kernels/sm90-split-fp32.md says what was tried.
#pragma once

#include <cfloat>
#include <cstdint>
#include <utility>

#include "catalog.h"
#include "core/params.h"
#include "core/split_fp32.h"
#include "kernels/sm90/mainloop/rs.cuh"
#include "kernels/sm90/producer.cuh"
#include "kernels/sm90/rescale.cuh"
#include "kernels/sm90/term_writer.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/wgmma.cuh"
#include "tile/pipeline.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::sm90 {

// A warp's elements of a in a stage: the fragments of four WGMMAs, in RowOrder::interleaved.
using StageWords = std::uint32_t[4][4];

// `first`: the warp's first row in the tile. MN-major: as in rs.cuh.
template <Major kMajor>
struct WordLoader {
  FragmentTranspose<32> transpose;

  __device__ explicit WordLoader(int first) : transpose(first) {}
  __device__ void load(std::uint32_t stage, StageWords& words) const {
#pragma unroll
    for (int step = 0; step < 4; ++step)
      transpose.load(stage + step * transpose.kRows * 128, words[step]);
  }
  template <int kRegisters>
  __device__ void order(float (&)[kRegisters]) const {}
};

// With 32-bit elements, ldmatrix loads fragments of WGMMA: four words of k of eight rows. If these
// were the even rows, they would use only half of the banks. So rows 8 to 15 come the other way
// round, and order() exchanges their sums.
template <>
struct WordLoader<Major::K> {
  std::uint32_t offset;

  __device__ explicit WordLoader(int first) {
    const int lane = threadIdx.x % 32, matrix = lane / 8, i = lane % 8;
    offset = first * 128 + tile::swizzle128(2 * i + ((matrix ^ i / 4) & 1), matrix / 2);
  }
  __device__ void load(std::uint32_t stage, StageWords& words) const {
#pragma unroll
    for (int step = 0; step < 4; ++step)
      ptx::ldmatrix_x4<false>(words[step], (stage + offset) ^ step * 32);
  }
  template <int kRegisters>
  __device__ void order(float (&sums)[kRegisters]) const {
    if (threadIdx.x % 32 < 16) return;
#pragma unroll
    for (int i = 0; i < kRegisters; i += 4) {
      std::swap(sums[i], sums[i + 2]);
      std::swap(sums[i + 1], sums[i + 3]);
    }
  }
};

// A chain is the sequence of WGMMAs over 16 of k: the products of a low and a high term, then those
// of two high terms. Their sum is added to f32 registers, rounded to nearest, while the next chain
// is in flight. In two steps tensor cores truncate hardly more than rounding does.
template <GemmConfig kConfig>
struct Tf32x2Mainloop {
  static_assert(kConfig.is_tf32x2() && major_b(kConfig.layout) == Major::K &&
                kConfig.m64_blocks == 1);
  static constexpr int kSteps = 2;  // of 8 k, of a chain. A stage has two chains
  static constexpr ptx::WgmmaType kType{kConfig.n, DType::tf32, DType::tf32, DType::f32,
                                        Layout::TN};

  using PipelineState = tile::PipelineState<kConfig.stages>;
  using Register = float;
  static constexpr int kRegisters = kConfig.n / 2;
  using Accumulators = float[1][kRegisters];

  template <class Meanwhile>
  __device__ static void multiply(const SharedStorage<kConfig>& shared, PipelineState state,
                                  int k_blocks, int warpgroup, Cluster cluster,
                                  Accumulators& accumulators, const Meanwhile& meanwhile) {
    meanwhile();
    const WordLoader<major_a(kConfig.layout)> loader(warpgroup * 64 + threadIdx.x / 32 % 4 * 16);
    StageWords words;
    Fragments even, odd;
    float even_sums[kRegisters], odd_sums[kRegisters];
    float totals[kRegisters];
    ElementRange ranges[2];                           // of the lane's two rows
    const int blocks_in_sum = k_blocks > 48 ? 8 : 4;  // about sqrt(k_blocks), a power of two
    // Waits for a stage, which is full where it has the terms of b.
    const auto begin_stage = [&] {
      ptx::mbarrier_wait(shared.terms_barrier(state.stage), state.parity);
      loader.load(shared.stage(state.stage), words);
    };
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) accumulators[0][i] = totals[i] = 0;
    begin_stage();
    even.split<0>(words, ranges);
#pragma unroll 1
    do {
      const int stage = state.stage;
      const std::uint32_t address = shared.uniform_stage(stage);
      multiply_chain<0>(even, address, even_sums);
      odd.split<kSteps>(words, ranges);
      multiply_chain<kSteps>(odd, address, odd_sums);
      state.advance();
      if (k_blocks > 1) begin_stage();
      ptx::wgmma_wait<1>();
      promote(even_sums, accumulators[0]);
      even.split<0>(words, ranges);
      ptx::wgmma_wait<0>();
      consumer_release<kConfig>(shared, stage, cluster);
      promote(odd_sums, accumulators[0]);
      // Large sums are rounded less often if some k-blocks are summed separately first.
      if ((k_blocks & (blocks_in_sum - 1)) == 0) {
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) {
          totals[i] += accumulators[0][i];
          accumulators[0][i] = 0;
        }
      }
    } while (--k_blocks > 0);
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) accumulators[0][i] += totals[i];
    loader.order(accumulators[0]);
    // The results of rows with a wide range are computed again.
    if (__any_sync(~0u, ranges[0].is_wide() || ranges[1].is_wide())) accumulators[0][0] = NAN;
  }

  // Writes the byte of the recompute mask of 16 rows: are there results that are not finite? `row`
  // and `col` are the first ones of the warp.
  __device__ static void mark(const TmaParams& params, int row, int col, int batch,
                              const float (&results)[kRegisters]) {
    static_assert(kConfig.n == kRecomputeTile);
    const Extent& extent = params.extent;
    const int lane = threadIdx.x % 32;
    bool recompute = false;
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      const int m = row + lane / 4 * 2 + i / 2 % 2, n = col + i / 4 * 8 + lane % 4 * 2 + i % 2;
      recompute |= m < extent.m && n < extent.n && !(fabsf(results[i]) <= FLT_MAX);
    }
    recompute = __any_sync(~0u, recompute);
    if (lane == 0 && row / kRecomputeTile < params.split.mask_m)
      *mask_byte(params.split, batch, row, col) = recompute;
  }

 private:
  // The terms of a in a chain.
  struct Fragments {
    std::uint32_t high[kSteps][4], low[kSteps][4];

    template <int kFirstStep>
    __device__ void split(const StageWords& words, ElementRange (&ranges)[2]) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t x = words[kFirstStep + step][i];
          const Tf32Terms terms = tf32_terms(x);
          ranges[i % 2].add(x);
          high[step][i] = terms.high;
          low[step][i] = terms.low;
        }
      }
    }
  };

  // Issues the WGMMAs of a chain.
  template <int kFirstStep>
  __device__ static void multiply_chain(const Fragments& a, std::uint32_t stage,
                                        float (&sums)[kRegisters]) {
    constexpr std::uint64_t kStep = ptx::kDescriptorStep<Major::K>;
    const std::uint64_t high =
        ptx::wgmma_descriptor(stage + TmaProducer<kConfig>::kBytesA) + kFirstStep * kStep;
    const std::uint64_t low = high + (TermWriter<kConfig>::kBytes >> 4);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) ptx::wgmma<kType>(sums, a.low[i], high + i * kStep, i != 0);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) ptx::wgmma<kType>(sums, a.high[i], low + i * kStep, true);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) ptx::wgmma<kType>(sums, a.high[i], high + i * kStep, true);
    ptx::wgmma_commit();
  }

  __device__ static void promote(float (&sums)[kRegisters], float (&accumulators)[kRegisters]) {
    ptx::wgmma_results(sums);
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) accumulators[i] += sums[i];
  }
};

}  // namespace tcgemm::sm90
