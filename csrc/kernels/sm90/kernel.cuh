// Scheduler + mainloop + epilogue for sm_90a: a persistent block of one loading warpgroup and one
// to three that compute. The loader runs ahead into the next tile while the epilogue of this one is
// stored.
//
//   warpgroup 0: warp 0 loads, others load scales or send columns of the result
//   warpgroup 1, 2, ..: 64-row blocks of the tile
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/params.h"
#include "kernels/sm90/register_budget.cuh"
#include "kernels/sm90/mainloop/dense.cuh"
#include "kernels/sm90/mainloop/split_fp32.cuh"
#include "kernels/sm90/mainloop/promoted.cuh"
#include "kernels/sm90/mainloop/rs.cuh"
#include "kernels/sm90/producer.cuh"
#include "kernels/sm90/scales.cuh"
#include "kernels/sm90/mainloop/sparse.cuh"
#include "kernels/sm90/rescale.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "tile/scheduler.cuh"
#include "tile/tma_store_columns.cuh"
#include "tile/store.cuh"

namespace tcgemm::sm90 {

// The mainloop of a row.
template <Kernel kRow>
using Loop = std::conditional_t<
    kRow.source_of_a == SourceOfA::registers, Registers<kRow>,
    std::conditional_t<
        kRow.sparse, Sparse<kRow>,
        std::conditional_t<(kRow.parts > 1), Parts<kRow>,
                           std::conditional_t<kRow.promotes(), Promoted<kRow>, Mainloop<kRow>>>>>;

// Columns that the epilogue works on at a time: as many as there are registers for beside the
// accumulators. s32 values are there twice.
constexpr int epilogue_columns(const Kernel& row) {
  const bool s32 = row.accumulator == DType::s32, turns = row.neighbours();
  if (s32 + turns + (row.warpgroups == 3) >= 2) return 16;
  return s32 || turns || row.warpgroups == 3 || row.m64_blocks == 2 || row.promotes() ? 32 : 64;
}

template <Kernel kRow>
struct Gemm {
  using Loop = sm90::Loop<kRow>;
  using Position = tile::Position<kRow.stages>;
  using Value = tile::Value<kRow.accumulator>;
  static constexpr tile::Rows kRows =
      kRow.neighbours() ? tile::Rows::neighbours : tile::Rows::apart;
  static constexpr Budget kBudget = budget(kRow);
  static_assert(kBudget.load + kRow.warpgroups * kBudget.compute <=
                kBudget.entry * (kRow.warpgroups + 1));
  static constexpr int kUnit = epilogue_columns(kRow);
  static constexpr int kFastUnit = kRow.neighbours() && kRow.warpgroups < 3 ? 32 : kUnit;
  // The result of 32 bits that has a fast way out.
  static constexpr DType kWordOut = kRow.accumulator == DType::s32 ? DType::s32 : DType::f32;

  __device__ static void run(const Sm90Params& params, char* memory) {
    const Block<kRow> shared(memory);
    const Cluster cluster{ptx::cluster_size(), ptx::cluster_rank()};

    if (threadIdx.x == 0) {
      ptx::tma_prefetch(&params.a);
      ptx::tma_prefetch(&params.b);
      if (params.store_tma != StoreTma::no) ptx::tma_prefetch(&params.out);
      shared.barriers.initialise(1, kRow.warpgroups * cluster.size);
      if constexpr (kRow.block_scaled)
        shared.scale_barriers.initialise(ColumnScales<kRow>::kWriters,
                                         ColumnScales<kRow>::kReaders);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (cluster.size > 1) ptx::cluster_sync();
    ptx::launch_dependents();
    ptx::wait_for_prerequisites();
    if constexpr (kRow.parts > 1)
      if (!Loop::decided(params)) return;

    const int warpgroup = threadIdx.x / 128;
    if (warpgroup == 0) {
      if constexpr (kBudget.load > 0) ptx::registers_decrease<kBudget.load>();
      if (threadIdx.x / 32 == 0) load(params, shared, cluster);
      if constexpr (kRow.block_scaled)
        if (const int warp = threadIdx.x / 32 - 1;
            scales_columns(params) && warp >= 0 && warp < ColumnScales<kRow>::kWarps)
          load_scales(params, shared, cluster, warp);
      if constexpr (kRow.sends_columns())
        if (const int warp = threadIdx.x / 32 - 1;
            params.store_tma == StoreTma::columns && warp >= 0 && warp < kRow.warpgroups)
          send_columns(params, shared, cluster, warp);
    } else {
      if constexpr (kBudget.compute > 0) ptx::registers_increase<kBudget.compute>();
      compute(params, shared, cluster, warpgroup - 1);
    }
  }

  // Calls visit(row, column, batch, k-blocks) for each tile of this block.
  template <class Visit>
  __device__ static void for_each_tile(const Sm90Params& params, Cluster cluster, Visit visit) {
    const int blocks = (params.extent.k + kRow.tile_k() - 1) / kRow.tile_k();
    for (std::int64_t index = blockIdx.x / cluster.size; index < params.tiling.total;
         index += gridDim.x / cluster.size) {
      const tile::Tile tile = tile::tile_at(params.tiling, index);
      visit((tile.m * cluster.size + cluster.rank) * kRow.tile_m(), tile.n * kRow.tile_n(),
            tile.batch, blocks);
    }
  }

  __device__ static void load(const Sm90Params& params, const Block<kRow>& shared,
                              Cluster cluster) {
    Position position;
    for_each_tile(params, cluster, [&](int row, int col, int batch, int blocks) {
      for (int block = 0; block < blocks; ++block) {
        ptx::mbarrier_wait(shared.barriers.empty(position.stage), position.parity ^ 1);
        if (ptx::elect())
          Ring<kRow>::load(params, shared.stage(position.stage),
                           shared.barriers.full(position.stage), row, col, batch, block, cluster);
        position.advance();
      }
    });
    // A block must outlive its peer's arrivals on its barriers: wait until every stage has come
    // back.
    if (cluster.size > 1) {
      for (int stage = 0; stage < kRow.stages; ++stage) {
        ptx::mbarrier_wait(shared.barriers.empty(position.stage), position.parity ^ 1);
        position.advance();
      }
    }
  }

  __device__ static void load_scales(const Sm90Params& params, const Block<kRow>& shared,
                                     Cluster cluster, int warp) {
    typename ColumnScales<kRow>::Position position;
    for_each_tile(params, cluster, [&](int, int col, int batch, int blocks) {
      ColumnScales<kRow>::load(params, shared, position, col, batch, blocks, warp);
    });
  }

  __device__ static void send_columns(const Sm90Params& params, const Block<kRow>& shared,
                                      Cluster cluster, int warpgroup) {
    static_assert(kRow.m64_blocks == 1);
    const tile::Sender sender(&params.out, shared.slabs + warpgroup * 4 * kSlabBytes, warpgroup);
    sender.begin();
    for_each_tile(params, cluster, [&](int row, int col, int batch, int) {
      sender.send(kRow.n, row + warpgroup * 64, col, batch);
    });
    sender.end();
  }

  __device__ static void compute(const Sm90Params& params, const Block<kRow>& shared,
                                 Cluster cluster, int warpgroup) {
    typename Loop::Position position;
    const int warp = threadIdx.x / 32 % 4;
    char* slab = shared.slabs + (warpgroup * 4 + warp) * kSlabBytes;
    if constexpr (kRow.promotes()) Turns<kRow>::begin(warpgroup);
    for_each_tile(params, cluster, [&](int tile_row, int col, int batch, int blocks) {
      const int row = tile_row + warpgroup * kRow.m64_blocks * 64 + warp * 16;
      if (params.epilogue.options) {
        for (int i = 0; i < kRow.m64_blocks; ++i)
          tile::prefetch(params.epilogue, tile::window(params.extent, row + i * 64, col, batch),
                         kRow.n);
      }
      if (params.epilogue.scaled)
        tile::prefetch_scales(params.epilogue, tile::window(params.extent, row, col, batch),
                              kRow.n);
      // Fresh ones for each tile: the first product does not read them, and so the epilogue of the
      // tile before need not keep what it has used up.
      typename Loop::Accumulators accumulators;
      if constexpr (kRow.block_scaled)
        Loop::multiply_scaled(params, shared, position, row, col, batch, blocks, warpgroup, cluster,
                              accumulators);
      else
        Loop::multiply(shared, position, blocks, warpgroup, cluster, accumulators);
      if constexpr (kRow.parts > 1) Unscale<kRow.n>(params, row, col, batch).run(accumulators[0]);
#pragma unroll
      for (int i = 0; i < kRow.m64_blocks; ++i)
        store(params, slab, warpgroup, accumulators[i], row + i * 64, col, batch);
    });
    // Shared memory must outlive the last stores that read it.
    if (params.store_tma == StoreTma::rows) ptx::tma_store_wait_read<0>();
    if constexpr (kRow.sends_columns())
      if (params.store_tma == StoreTma::columns) tile::hand_nothing(warpgroup);
  }

  // One warp's 16 rows of the tile.
  __device__ static void store(const Sm90Params& params, char* slab, int warpgroup,
                               const typename Loop::Register (&fragment)[Loop::kRegisters], int row,
                               int col, int batch) {
    const Epilogue& epilogue = params.epilogue;
    if constexpr (kRow.sends_columns()) {
      char* slabs = slab - threadIdx.x / 32 % 4 * kSlabBytes;  // of the warpgroup
      if (params.store_tma == StoreTma::columns)
        return tile::hand_columns<kRow.sent_columns(), kRow.n>(slabs, warpgroup, fragment);
    }
    const TensorMap* map = params.store_tma == StoreTma::rows ? &params.out : nullptr;
    bool fast = epilogue.fast && map != nullptr;
    if constexpr (kRows == tile::Rows::neighbours) {
      const tile::Window window = tile::window<kRows>(params.extent, row, col, batch);
      if (tile::whole_columns(epilogue, window, kRow.n)) {
        if (tile::store_plain_columns<kRow.accumulator>(epilogue, window, fragment)) return;
        fast = epilogue.fast && bits(epilogue.out_dtype) == 16;
      }
    }
    if (fast && epilogue.out_dtype == DType::bf16)
      tile::store_fast<kRow.n, kFastUnit, DType::bf16, kRows>(epilogue, params.extent, map, slab,
                                                              fragment, row, col, batch);
    else if (fast && epilogue.out_dtype == DType::f16)
      tile::store_fast<kRow.n, kFastUnit, DType::f16, kRows>(epilogue, params.extent, map, slab,
                                                             fragment, row, col, batch);
    else if (kRows == tile::Rows::apart && fast && epilogue.out_dtype == kWordOut)
      tile::store_fast<kRow.n, kFastUnit, kWordOut, kRows>(epilogue, params.extent, map, slab,
                                                           fragment, row, col, batch);
    else
      tile::store_rows<kRow.n, kUnit, true, Value, kRows>(
          epilogue, params.extent, map, slab, row, col, batch,
          [&](int unit, Value(&v)[kUnit / 2]) { tile::select<kRow.n / kUnit>(fragment, unit, v); });
  }
};

}  // namespace tcgemm::sm90
