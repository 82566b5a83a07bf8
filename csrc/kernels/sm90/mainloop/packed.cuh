// The mainloop of sm_90a with a packed weight (core/packed_weight.h): WGMMA reads a from registers,
// where it is decoded and multiplied by its scales. A weight of 16 bits gives the same sums.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/mainloop/packed_stage.cuh"
#include "kernels/sm90/producer.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/uniform.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/packed_reader.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// A warp has four fragments, one for each step of a k-block. While the WGMMAs of the three other
// steps are in flight, a fragment is decoded:
//
//   wait for step 0 of block i, decode step 0 of block i + 1, issue it | the same for step 1 | ..
template <GemmConfig kConfig>
struct PackedMainloop {
  static_assert(kConfig.mainloop == Mainloop::packed && kConfig.layout == Layout::TN &&
                kConfig.m64_blocks == 1 && kConfig.accumulator == DType::f32);
  static constexpr ptx::WgmmaType kType = wgmma_type<kConfig>(kConfig.n);

  using PipelineState = tile::UnrolledState<kConfig.stages>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  using Accumulators = Register[kConfig.m64_blocks][kRegisters];
  static constexpr int kSteps = PackedLayout::kDepth / 16;
  // The groups of warpgroups that divide the k-blocks. A stage belongs to one of them: a warpgroup
  // must not wait for a stage before another one has seen the block before in it.
  static constexpr int kParts = kConfig.k_groups();
  static_assert(kConfig.stages % kParts == 0);

  // Computes all k-blocks of a tile. Reader: void for a loop for each layout of the packed weight.
  template <class Reader, class Meanwhile>
  __device__ __forceinline__ static void multiply_packed(const TmaParams& params,
                                                         const SharedStorage<kConfig>& shared,
                                                         PipelineState state, int k_blocks,
                                                         int warpgroup, Cluster cluster,
                                                         Accumulators& accumulators,
                                                         const Meanwhile& meanwhile) {
    meanwhile();
    clear(accumulators[0]);  // once for all loops: in each one it costs registers
    if (k_blocks == 0) return;
    const auto multiply_layout = [&]<class Layout>() __attribute__((always_inline)) {
      multiply_blocks<Layout>(params, shared, state.parities, 0, k_blocks, warpgroup, cluster,
                              accumulators[0]);
    };
    if constexpr (std::is_void_v<Reader>)
      tile::for_reader<kConfig.input, kConfig.weight_bits>(params.packed, multiply_layout);
    else
      multiply_layout.template operator()<Reader>();
  }

  // Each warpgroup calls this once, before multiply_group.
  __device__ static void begin(int k_group) {
    if (k_group == 0) ptx::named_barrier_arrive(kFree, kExchangeThreads);
  }

  // The same for warpgroups that divide the k-blocks.
  template <class Reader, class Meanwhile>
  __device__ __forceinline__ static void multiply_group(const TmaParams& params,
                                                        const SharedStorage<kConfig>& shared,
                                                        PipelineState state, int k_blocks,
                                                        int warpgroup, int k_group, Cluster cluster,
                                                        Accumulators& accumulators,
                                                        const Meanwhile& meanwhile) {
    meanwhile();
    clear(accumulators[0]);
    if (k_blocks <= k_group) return;
    multiply_blocks<Reader>(params, shared, state.parities, k_group, k_blocks, warpgroup, cluster,
                            accumulators[0]);
  }

  // Adds the sums of the second group to the sums of the first one. Returns true in the first
  // group.
  __device__ __forceinline__ static bool add_groups(const SharedStorage<kConfig>& shared,
                                                    int warpgroup, int k_group,
                                                    Register (&sums)[kRegisters]) {
    static_assert(kParts == 2);
    constexpr int kVectorBytes = 128 * kConfig.row_groups() * 16;
    const std::uint32_t place = shared.exchange() + (warpgroup * 128 + threadIdx.x % 128) * 16;
    if (k_group != 0) {
      ptx::named_barrier_sync(kFree, kExchangeThreads);
#pragma unroll
      for (int i = 0; i < kRegisters; i += 4)
        ptx::store_shared_vector(place + i / 4 * kVectorBytes, tile::vector_of(&sums[i]));
      ptx::named_barrier_arrive(kFull, kExchangeThreads);
      return false;
    }
    ptx::named_barrier_sync(kFull, kExchangeThreads);
#pragma unroll
    for (int i = 0; i < kRegisters; i += 4)
      tile::add_vector(&sums[i], ptx::load_shared_vector(place + i / 4 * kVectorBytes));
    ptx::named_barrier_arrive(kFree, kExchangeThreads);
    return true;
  }

 private:
  __device__ __forceinline__ static void clear(Register (&sums)[kRegisters]) {
#pragma unroll
    for (Register& sum : sums) sum = 0;
  }

  static constexpr int kExchangeThreads = 128 * kConfig.warpgroups;
  static constexpr int kFull = 14, kFree = 15;  // named barriers, after the epilogue's
  // The stages of a group of warpgroups: group g has stages g, g + kParts, ..
  static constexpr int kOwnStages = kConfig.stages / kParts;
  static constexpr int kOwnBytes = kParts * kConfig.stage_bytes();  // from one to the next

  // Multiplies blocks k_group, k_group + kParts, .. and adds to the sums. The loop is unrolled over
  // the stages, whose addresses are then constants: with stages at run time a block had a third
  // more instructions.
  template <class Reader>
  __device__ __forceinline__ static void multiply_blocks(
      const TmaParams& params, const SharedStorage<kConfig>& shared, std::uint32_t parities,
      int k_group, int k_blocks, int warpgroup, Cluster cluster, Register (&sums)[kRegisters]) {
    int left = (k_blocks - k_group + kParts - 1) / kParts;
    const int group = kParts == 1 ? 0 : ptx::uniform(k_group);
    const std::uint32_t stages = shared.stage(group);
    const Releaser<kConfig> release(shared, group, cluster);
    parities >>= group;
    // Stage i of the group.
    const auto wait_for = [&](int i) {
      ptx::mbarrier_wait(shared.barriers.full(group + i * kParts), parities >> i * kParts & 1);
    };
    const auto block_of = [&](int i) { return packed_block(shared, stages + i * kOwnBytes); };
    // The low word of the descriptor of b changes with the stage, and the high word does not.
    const std::uint64_t first_b = ptx::wgmma_descriptor(stages + TmaProducer<kConfig>::kBytesA);
    constexpr std::uint64_t kHighWord = ptx::wgmma_descriptor(0) >> 32 << 32;

    Reader reader(params.packed, warpgroup * 4 + threadIdx.x / 32 % 4, shared.code_pairs());
    typename Reader::Fragments a;
    wait_for(0);
    typename Reader::Words words = reader.read(block_of(0));
    bool has_previous = false;
    int last = 0;
    // Multiplies the block of stage i. Returns false after the last block.
    const auto multiply_stage = [&]<int i>() __attribute__((always_inline)) {
      constexpr int kPrevious = (i + kOwnStages - 1) % kOwnStages, kNext = (i + 1) % kOwnStages;
      reader.take(words);
      const std::uint32_t b = ptx::opaque(std::uint32_t(first_b)) + (i * kOwnBytes >> 4);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        constexpr std::uint32_t kStep = ptx::kDescriptorStep<Major::K>;
        ptx::wgmma_wait<kSteps - 1>();
        reader.decode(step, a[step]);
        ptx::wgmma_fence();
        ptx::wgmma<kType>(sums, a[step], kHighWord | (b + step * kStep), true);
        ptx::wgmma_commit();
      }
      // The WGMMAs of the block before this one have completed.
      if (i != 0 || has_previous) release(kPrevious * kParts);
      last = i;
      if (--left == 0) return false;
      if (kNext == 0) parities = ~parities;
      wait_for(kNext);
      words = reader.read(block_of(kNext));
      return true;
    };
    const auto multiply_stages = [&]<int... i>(std::integer_sequence<int, i...>)
                                     __attribute__((always_inline)) {
                                       return (multiply_stage.template operator()<i>() && ...);
                                     };
    while (multiply_stages(std::make_integer_sequence<int, kOwnStages>())) has_previous = true;
    ptx::wgmma_wait<0>();
    ptx::wgmma_results(sums);
    release(last * kParts);
  }
};

}  // namespace tcgemm::sm90
