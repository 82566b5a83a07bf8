// Producer + mainloop + epilogue for sm_90a: operands by TMA, products by WGMMA. frame.cuh has the
// scheduler and the split into warpgroups.
//
//   warpgroup 0: warp 0 loads, others load scales, store columns of the result or find groups
//   warpgroup 1, 2, ..: 64-row blocks of the tile; GemmConfig::k_groups: 3, 4 as 1, 2
#pragma once

#include <cstddef>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/cluster_sum.cuh"
#include "kernels/sm90/epilogue.cuh"
#include "kernels/sm90/frame.cuh"
#include "kernels/sm90/grid_sum.cuh"
#include "kernels/sm90/grid_walk.cuh"
#include "kernels/sm90/group_tiles.cuh"
#include "kernels/sm90/order_barrier.cuh"
#include "kernels/sm90/producer.cuh"
#include "kernels/sm90/scales.cuh"
#include "kernels/sm90/term_writer.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent.cuh"
#include "ptx/elect.cuh"
#include "ptx/parameters.cuh"
#include "ptx/tma.cuh"
#include "tile/code_pairs.cuh"
#include "tile/packed_reader.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

template <GemmConfig kConfig, EpiloguePath kPath, template <GemmConfig> class MainloopOf>
struct Gemm {
  using Frame = sm90::Frame<kConfig>;
  using Mainloop = MainloopOf<kConfig>;
  using WarpEpilogue = FragmentEpilogue<kConfig, kPath>;
  static constexpr bool kStoresColumns = WarpEpilogue::kStoresColumns;
  static constexpr bool kAddsInGrid = kPath == EpiloguePath::slices;
  static constexpr bool kStreamsK = kConfig.streams_k_in(kPath);
  static constexpr bool kAddsInCluster =
      kConfig.sums_in_cluster() && kPath != EpiloguePath::columns && !kAddsInGrid;
  // The rolled epilogue reads the bias and the scales from global memory.
  static constexpr bool kSharesVector = kPath != EpiloguePath::rolled && !kAddsInGrid;
  // The next kernel may start when a CTA has issued its last load. Before that, this CTA leaves no
  // shared memory for another one. docs/dev/kernels/frame.md says what kernels gain.
  static constexpr bool kTriggersLate = kConfig.mainloop == tcgemm::Mainloop::dense;
  // The other mainloops have no registers for the vector.
  static constexpr bool kLoadsVectorAhead =
      kSharesVector && (kConfig.mainloop == tcgemm::Mainloop::dense || kConfig.promotes());

  // Inlined, however long: a call would put the accumulators into memory.
  __device__ __forceinline__ static void run(const TmaParams& params, char* memory) {
    const SharedStorage<kConfig> shared(memory);
    Cluster cluster = position(params);
    const int warpgroup = threadIdx.x / 128;
    if (warpgroup == 0) {
      Frame::begin_producer();
      produce(params, shared, cluster);
    } else {
      Frame::start(cluster);
      Frame::begin_consumer();
      cluster.set_receiver(threadIdx.x % (kConfig.is_packed_mma() ? 32 : 128));
      if constexpr (kConfig.table_bytes() > 0) fill_table(params, shared, threadIdx.x / 32 - 4);
      if constexpr (kHasConsumerForLayout) {
        const auto consume_layout = [&]<class Reader>() __attribute__((always_inline)) {
          consume<Reader>(params, shared, cluster, warpgroup - 1);
        };
        tile::for_reader<kConfig.input, kConfig.weight_bits>(params.packed, consume_layout);
      } else {
        consume<void>(params, shared, cluster, warpgroup - 1);
      }
      if constexpr (kAddsInGrid) add_in_grid(params, shared, cluster, threadIdx.x / 32 - 4);
    }
  }

 private:
  // Whether each layout of the packed weight has its own consumer, with an epilogue, and not only
  // its own loop. Loops that join leave too few registers for 128x256, and for warpgroups that
  // divide k.
  static constexpr bool kHasConsumerForLayout = kConfig.has_packed_weight() &&
                                                !kConfig.is_packed_mma() &&
                                                (kConfig.k_groups() > 1 || kConfig.n > 160);

  // `warp` counts the consumer warps.
  __device__ static void add_in_grid(const TmaParams& params, const SharedStorage<kConfig>& shared,
                                     Cluster cluster, int warp) {
    if (params.slices.steps == GridSteps::store) return;
    if (params.slices.steps == GridSteps::all)
      GridSum<kConfig>::wait(warp);
    else
      Frame::finish_start(cluster);
    GridSum<kConfig>::add(params, shared, shared.smem_d + warp * kStagingBytes, cluster, warp);
  }

  // A tile of a CTA, or a slice of it.
  struct Tile {
    int row, col;
    int batch;    // a matrix of the result
    int matrix;   // of the operands
    int k_block;  // the first one
    int k_blocks;
    // GridWalk
    int place = 0;  // of the sums in memory
    int slices_left = 0;
    // Of a group: its rows, or its k.
    int begin = 0, end = 0;

    __device__ bool is_first_slice() const { return slices_left > 0 && k_block == 0; }
    __device__ bool is_later_slice() const { return slices_left > 0 && k_block > 0; }
  };

  // Does this launch compute the tile? If k is divided in two steps, one launch stores the later
  // slices, and the next one has the first slices and the whole tiles.
  __device__ static bool is_computed(const TmaParams& params, const Tile& tile) {
    const GridSteps steps = params.slices.steps;
    return steps == GridSteps::all || (steps == GridSteps::store) == tile.is_later_slice();
  }

  // The slice of a tile whose sum a cluster, or another kernel, adds to others.
  __device__ static void divide(const TmaParams& params, Cluster cluster, Tile& tile) {
    if (!kConfig.has_slices() || (kStreamsK && params.slices.stream_k)) return;
    const int slice = params.slices.slice(tile.batch, cluster.slice);
    tile.matrix = params.slices.matrix(tile.batch);
    tile.k_block = params.slices.first(slice);
    if constexpr (kStreamsK) tile.k_blocks = params.slices.size(slice);
  }

  // The extents of the result around a tile, which nothing is stored outside of.
  __device__ static decltype(auto) extent_of(const TmaParams& params, const Tile& tile) {
    if constexpr (kConfig.grouped == Axis::m)
      return Extent{tile.end, params.extent.n, params.extent.k, params.extent.batch};
    else
      return (params.extent);
  }

  // The first k that is loaded of a group of k.
  __device__ static int first_k(const auto& tile) { return first_loaded_k<kConfig>(tile.begin); }
  __device__ static int k_blocks(const TmaParams& params, const RingTile& tile) {
    if constexpr (kConfig.grouped == Axis::m) return Frame::k_blocks(params);
    return (tile.end - first_k(tile) + kConfig.tile_k() - 1) / kConfig.tile_k();
  }

  // Calls visit(tile, advance) for each tile of this CTA of a grouped product. read() returns the
  // next tile of the ring.
  template <class Read, class Visit>
  __device__ __forceinline__ static void for_each_group_tile(const TmaParams& params,
                                                             const Read& read, const Visit& visit) {
    for (RingTile at = read(); at.group >= 0;) {
      const Tile tile{.row = at.row,
                      .col = at.col,
                      .batch = at.group,
                      .matrix = at.group,
                      .k_block = 0,
                      .k_blocks = k_blocks(params, at),
                      .begin = at.begin,
                      .end = at.end};
      visit(tile, [&] { at = read(); });
    }
  }

  // Calls visit(tile, advance) for each tile of this CTA: Frame::for_each_tile.
  template <class Visit>
  __device__ __forceinline__ static void for_each_tile(const TmaParams& params, Cluster cluster,
                                                       const Visit& visit) {
    if constexpr (kAddsInGrid || kStreamsK) {
      if (kAddsInGrid && params.slices.steps == GridSteps::add) return;
      GridWalk<kAddsInGrid> walk(params, cluster.index());
      while (!walk.done()) {
        const tile::TileCoord at = walk.tile();
        Tile tile{
            Frame::row(at, cluster), Frame::col(at, cluster), at.batch,     at.batch,
            walk.k_block(),          walk.k_blocks(),         walk.place(), walk.slices_left()};
        if constexpr (!kAddsInGrid) divide(params, cluster, tile);
        if (kAddsInGrid || is_computed(params, tile))
          visit(tile, [&] { walk.advance(); });
        else
          walk.advance();
      }
    } else {
      const auto visit_tile = [&](int row, int col, int batch, int k_blocks, const auto& advance)
                                  __attribute__((always_inline)) {
                                    Tile tile{row, col, batch, batch, 0, k_blocks};
                                    divide(params, cluster, tile);
                                    visit(tile, advance);
                                  };
      Frame::for_each_tile(params, cluster, visit_tile);
    }
  }

  // Each consumer warp calls this before Frame::finish_start, after which all see the code pairs.
  // The table is part of the packed weight.
  __device__ static void fill_table(const TmaParams& params, const SharedStorage<kConfig>& shared,
                                    int warp) {
    if (params.packed.format != WeightFormat::table4) return;
    if (params.constant != ConstantOperand::a) ptx::wait_for_prerequisites();
    tile::fill_code_pairs<kConfig.input>(params.packed.table, shared.code_pairs(), warp,
                                         4 * kConfig.warpgroups);
  }

  __device__ static Cluster position(const TmaParams& params) {
    const std::uint32_t rank = ptx::cluster_rank();
    if (kAddsInCluster && params.slices.in_cluster)
      return {.slices = ptx::cluster_size(), .slice = rank};
    if constexpr (!kConfig.shares_a()) return {.size_m = ptx::cluster_size(), .rank_m = rank};
    // A division would be many instructions of each warp.
    const uint2 size = ptx::cluster_shape();
    return {.size_m = size.x,
            .rank_m = rank & (size.x - 1),
            .size_n = size.y,
            .rank_n = static_cast<std::uint32_t>(part_of(rank, size.x))};
  }

  __device__ static void produce(const TmaParams& params, const SharedStorage<kConfig>& shared,
                                 Cluster cluster) {
    if (threadIdx.x / 32 == 0) {
      Frame::start_first_warp(cluster, [&] { initialise(params, shared, cluster); });
      if constexpr (kConfig.shares_a())
        if (cluster.size_n > 1) return load<true>(params, shared, cluster);
      return load<false>(params, shared, cluster);
    }
    Frame::start(cluster);
    // The last warp has nothing to do meanwhile, unless it loads scales.
    if constexpr (!kConfig.block_scaled())
      if (threadIdx.x / 32 == 3) ptx::warm_parameters<offsetof(TmaParams, split)>(params);
    Frame::finish_start(cluster);
    [[maybe_unused]] const int warp = threadIdx.x / 32 - 1;
    if constexpr (kConfig.block_scaled()) load_scales(params, shared, cluster, warp);
    if constexpr (kConfig.is_tf32x2()) write_terms(params, shared, cluster, warp);
    if constexpr (kStoresColumns)
      if (params.tma_store == TmaStore::columns && warp < kConfig.warpgroups)
        run_store_warp(params, shared, cluster, warp);
    if constexpr (kConfig.is_grouped()) {
      if (warp == 0)
        schedule_groups(params, TileRing<kConfig>(shared), cluster);
      else
        tile::clear_groups<kConfig.grouped>(params, blockIdx.x * 2 + warp - 1, gridDim.x * 2);
    }
  }

  __device__ static void initialise(const TmaParams& params, const SharedStorage<kConfig>& shared,
                                    Cluster cluster) {
    ptx::tma_prefetch(&params.a);
    ptx::tma_prefetch(&params.b);
    if (params.tma_store != TmaStore::none) ptx::tma_prefetch(&params.out);
    shared.barriers.initialise(kConfig.block_scaled() ? 1 + ScaleProducer<kConfig>::kWriters : 1,
                               kConfig.stage_readers() * cluster.writers());
    if constexpr (kConfig.is_tf32x2()) TermWriter<kConfig>::initialise(shared);
    if constexpr (kConfig.is_grouped()) TileRing<kConfig>(shared).initialise();
  }

  using Groups = tile::StageGroups<kConfig.group_stages()>;

  // One thread loads. Its loop is short: with few rows, where a k-block is small, its instructions
  // decide the time of the product. kSharesA: with other CTAs. It has a loop of its own, so that
  // the other one stays as short.
  template <bool kSharesA>
  __device__ static void load(const TmaParams& params, const SharedStorage<kConfig>& shared,
                              Cluster cluster) {
    if (!ptx::elect()) return;
    if constexpr (!kSharesA) cluster.size_n = 1, cluster.rank_n = 0;  // constants
    typename Mainloop::PipelineState state;
    if constexpr (kConfig.terms() > 1) {
      Frame::begin_loads();
      if (!Mainloop::decided(params)) return;
    }
    bool is_first_tile = kConfig.terms() == 1;
    const auto load_tile = [&](const Tile& tile, const auto& advance) {
      TmaProducer<kConfig, kSharesA> producer(params, cluster, tile.row, tile.col, tile.matrix);
      const int end = tile.k_block + tile.k_blocks;
      Groups group(tile.k_block, tile.k_blocks);
      state.begin_tile();
      producer.seek(tile.k_block, kConfig.grouped == Axis::k ? first_k(tile) : 0);
      if (is_first_tile) {
        // The first stages get the operand that the kernels before this one do not write.
        const bool is_constant = params.constant != ConstantOperand::none;
        const int ahead =
            is_constant ? min(Groups::count(tile.k_blocks), kConfig.stage_groups()) : 0;
        constexpr int kUnroll = kSharesA ? 1 : 4;
        Groups early = group;
#pragma unroll(kUnroll)
        for (int i = 0; i < ahead; ++i, early.advance())
          producer.load_constant(shared.stage(i), shared.barriers.full(i), early);
        if constexpr (kTriggersLate)
          ptx::wait_for_prerequisites();
        else
          Frame::begin_loads();
#pragma unroll(kUnroll)
        for (int i = 0; i < ahead; ++i, group.advance()) {
          producer.load_other(shared.stage(i), shared.barriers.full(i), group);
          state.advance();
        }
        is_first_tile = false;
      }
#pragma unroll 1
      for (; group.k_block < end; group.advance()) {
        shared.barriers.producer_acquire(state);
        producer.load(shared.stage(state.stage), shared.barriers.full(state.stage), group);
        state.advance();
      }
      advance();
    };
    if constexpr (kConfig.is_grouped()) {
      TileRing<kConfig> ring(shared);
      for_each_group_tile(params, [&] { return ring.read(); }, load_tile);
    } else {
      for_each_tile(params, cluster, load_tile);
    }
    if constexpr (kTriggersLate) ptx::launch_dependents();
    // A CTA must outlive its peers' arrivals on its barriers: wait until every stage is empty.
    if (cluster.size() > 1) {
#pragma unroll(kSharesA ? 1 : kConfig.stage_groups())
      for (int i = 0; i < kConfig.stage_groups(); ++i) {
        shared.barriers.producer_acquire(state);
        state.advance();
      }
    }
  }

  __device__ static void load_scales(const TmaParams& params, const SharedStorage<kConfig>& shared,
                                     Cluster cluster, int warp) {
    typename ScaleProducer<kConfig>::State state;
    const auto load_tile = [&](const Tile& tile, const auto& advance) {
      ScaleProducer<kConfig>::load(params, shared, state, tile.row, tile.col, tile.matrix,
                                   tile.k_block, tile.k_blocks, warp);
      advance();
    };
    for_each_tile(params, cluster, load_tile);
  }

  __device__ static void write_terms(const TmaParams& params, const SharedStorage<kConfig>& shared,
                                     Cluster cluster, int warp) {
    TermWriter<kConfig> writer(shared, warp);
    const auto write_tile = [&](const Tile& tile, const auto& advance) {
      writer.write(tile.k_blocks, params.extent.n - tile.col);
      advance();
    };
    for_each_tile(params, cluster, write_tile);
  }

  __device__ static void run_store_warp(const TmaParams& params,
                                        const SharedStorage<kConfig>& shared, Cluster cluster,
                                        int warpgroup) {
    const tile::StoreWarp store_warp(&params.out, shared.smem_d + warpgroup * 4 * kStagingBytes,
                                     warpgroup, params.epilogue.out_dtype,
                                     params.epilogue.store_policy);
    store_warp.begin();
    constexpr int kBufferColumns =
        kPath == EpiloguePath::columns ? kConfig.store_columns() : kStoreColumns;
    const auto store_tile = [&](const Tile& tile, const auto& advance) {
      // With stream-K the CTA of the first slice of a tile stores the result.
      const int blocks = tile.is_later_slice() ? 0 : kConfig.m64_blocks;
      for (int i = 0; i < blocks; ++i)
        store_warp.store<kConfig.n, kBufferColumns>(
            tile.row + (warpgroup * kConfig.m64_blocks + i) * 64, tile.col, tile.batch);
      advance();
    };
    for_each_tile(params, cluster, store_tile);
    store_warp.end();
  }

  // Reader: of the packed weight, if kHasConsumerForLayout.
  template <class Reader>
  __device__ __forceinline__ static void consume(const TmaParams& params,
                                                 const SharedStorage<kConfig>& shared,
                                                 Cluster cluster, int consumer) {
    typename Mainloop::PipelineState state;
    const int warp = threadIdx.x / 32 % 4;
    constexpr bool kDividesK = kConfig.k_groups() > 1;
    const int k_group = kDividesK ? consumer / kConfig.row_groups() : 0;
    const int warpgroup = kDividesK ? consumer % kConfig.row_groups() : consumer;
    if constexpr (kDividesK) Mainloop::begin(k_group);
    char* smem_d = shared.smem_d + (warpgroup * 4 + warp) * kStagingBytes;
    if constexpr (kConfig.orders_warpgroups()) OrderBarrier<kConfig>::begin(warpgroup);
    // The warpgroup's rows of a tile; pingpong: the whole tile, which is every second one.
    const int rows_before = kConfig.pingpong ? 0 : warpgroup * kConfig.m64_blocks * 64;
    int tile_index = 0;
    if constexpr (kConfig.terms() > 1) {
      Frame::finish_start(cluster);
      if (!Mainloop::decided(params)) return;
    }
    bool is_first_tile = kConfig.terms() == 1;
    const auto compute_tile = [&](const Tile& tile,
                                  const auto& advance) __attribute__((always_inline)) {
      const int col = tile.col, k_blocks = tile.k_blocks;
      [[maybe_unused]] const int batch = tile.batch;
      // The set-up before the loop over the tiles needs no operand, and does not wait.
      if (is_first_tile) Frame::finish_start(cluster);
      is_first_tile = false;
      // The mainloop has a copy that lives no longer than it. `state` is live in the epilogue too,
      // where registers are scarce: it is in local memory, and the loop would keep it there.
      const typename Mainloop::PipelineState first = state;
      state.advance(Groups::count(k_blocks));
      if constexpr (kConfig.pingpong)
        if (tile_index++ % 2 != warpgroup) return advance();
      [[maybe_unused]] const int row = tile.row + rows_before + warp * 16;
      [[maybe_unused]] typename WarpEpilogue::SharedVector vector;
      [[maybe_unused]] typename WarpEpilogue::Addends addends;
      const auto meanwhile = [&] {
        advance();
        if constexpr (!kAddsInGrid)
          WarpEpilogue::load(params, extent_of(params, tile), row, col, batch, addends);
        if constexpr (kLoadsVectorAhead) vector.load(params, col, batch);
      };
      // New accumulators for each tile: the mainloop overwrites them, so the compiler need not keep
      // what the epilogue of the previous tile has used up.
      typename Mainloop::Accumulators accumulators;
      if constexpr (kDividesK)
        Mainloop::template multiply_group<Reader>(params, shared, first.uniform(), k_blocks,
                                                  warpgroup, k_group, cluster, accumulators,
                                                  meanwhile);
      else if constexpr (kConfig.has_packed_weight())
        Mainloop::template multiply_packed<Reader>(params, shared, first.uniform(), k_blocks,
                                                   warpgroup, cluster, accumulators, meanwhile);
      else if constexpr (kConfig.block_scaled())
        Mainloop::multiply_scaled(params, shared, first.uniform(), k_blocks, warpgroup, cluster,
                                  accumulators, meanwhile);
      else if constexpr (kConfig.grouped == Axis::k)
        Mainloop::multiply_range(shared, first.uniform(), tile.begin - first_k(tile),
                                 tile.end - first_k(tile), warpgroup, cluster, accumulators,
                                 meanwhile);
      else
        Mainloop::multiply(shared, first.uniform(), k_blocks, warpgroup, cluster, accumulators,
                           meanwhile);
      [[maybe_unused]] const bool adds_slices = kAddsInCluster && cluster.slices > 1;
      if constexpr (kAddsInCluster)
        if (adds_slices && k_group == 0) ClusterSum<kConfig>::begin(shared, warpgroup);
      if constexpr (kDividesK)
        if (!Mainloop::add_groups(shared, warpgroup, k_group, accumulators[0])) return;
      if constexpr (kSharesVector && !kLoadsVectorAhead) vector.load(params, col, batch);
      float* tile_vector = shared.vector_of(warpgroup);
      if constexpr (kSharesVector) vector.publish(params, tile_vector, warpgroup);
      if constexpr (kAddsInCluster)
        if (adds_slices && !ClusterSum<kConfig>::add(shared, cluster, warpgroup, accumulators))
          return;
      if constexpr (kConfig.terms() > 1)
        typename Mainloop::Rescale(params, row, col, batch).run(accumulators[0]);
      if constexpr (kConfig.is_tf32x2()) Mainloop::mark(params, row, col, batch, accumulators[0]);
      if constexpr (kStreamsK) {
        using Sum = GridSum<kConfig>;
        const bool at_once = params.slices.steps == GridSteps::all;
        if (tile.is_later_slice()) {
          Sum::store(params, cluster, tile.place, row, col, warpgroup, accumulators[0]);
          if (at_once && tile.slices_left == 1) Sum::arrive(warpgroup * 4 + warp);
          return;
        }
        if (tile.is_first_slice()) {
          if (at_once) Sum::wait(warpgroup * 4 + warp);
          // The rolled kernel has registers for few, and so has a tile with 128 accumulators.
          constexpr int kParts = kConfig.n == 256 ? 4 : 2;
          constexpr int kAhead = kConfig.n / 2 / kParts / (kPath == EpiloguePath::rolled ? 2 : 1);
          Sum::template add_others<kAhead>(params, cluster, tile.place, row, col, warpgroup,
                                           accumulators[0]);
        }
      }
      if constexpr (kAddsInGrid) {
        GridSum<kConfig>::store(params, cluster, tile.place, row, col, warpgroup, accumulators[0]);
      } else {
#pragma unroll
        for (int i = 0; i < kConfig.m64_blocks; ++i)
          WarpEpilogue::store(params, extent_of(params, tile), smem_d, tile_vector, warpgroup,
                              accumulators[i], addends[i], row + i * 64, col, batch);
      }
      if constexpr (kAddsInCluster)
        if (adds_slices) ClusterSum<kConfig>::end();
    };
    if constexpr (kConfig.is_grouped()) {
      TileRing<kConfig> ring(shared);
      Frame::finish_start(cluster);
      is_first_tile = false;
      for_each_group_tile(params, [&] { return ring.read_as_warp(); }, compute_tile);
    } else {
      for_each_tile(params, cluster, compute_tile);
    }
    // In one of two launches of stream-K a CTA may have no tile. The other warps wait for this one.
    if constexpr (kStreamsK)
      if (is_first_tile) Frame::finish_start(cluster);
    if (k_group == 0) WarpEpilogue::finish(params, warpgroup);
  }
};

}  // namespace tcgemm::sm90
