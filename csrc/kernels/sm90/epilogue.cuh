// The epilogue of a consumer warp for accumulators of 32 bits: it chooses the store path of a
// fragment, 16 rows of the tile. The paths are in tile/store.cuh, tile/store_columns.cuh and
// tile/tma_store_columns.cuh.
#pragma once

#include "catalog.h"
#include "core/params.h"
#include "ptx/tma.cuh"
#include "tile/fragment.cuh"
#include "tile/store.cuh"
#include "tile/store_columns.cuh"
#include "tile/tma_store_columns.cuh"

namespace tcgemm::sm90 {

// Columns that the epilogue works on at a time: as many as there are registers for beside the
// accumulators. The epilogue of s32 has its values twice, as s32 and as f32.
constexpr int epilogue_columns(const GemmConfig& config) {
  const bool s32 = config.accumulator == DType::s32, interleaved = config.interleaved_rows();
  if (s32 + interleaved + (config.warpgroups == 3) >= 2) return 16;
  return s32 || interleaved || config.warpgroups == 3 || config.m64_blocks == 2 || config.promotes()
             ? 32
             : 64;
}

template <GemmConfig kConfig>
struct FragmentEpilogue {
  using Value = tile::Value<kConfig.accumulator>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  static constexpr tile::RowOrder kRowOrder =
      kConfig.interleaved_rows() ? tile::RowOrder::interleaved : tile::RowOrder::native;
  static constexpr int kUnit = epilogue_columns(kConfig);
  static constexpr int kUnrolledUnit =
      kConfig.interleaved_rows() && kConfig.warpgroups < 3 ? 32 : kUnit;
  // The 32-bit result that store_unrolled can write.
  static constexpr DType kOut32 = kConfig.accumulator == DType::s32 ? DType::s32 : DType::f32;

  // Prefetches the operands of the epilogue. `row` and `col` are the warp's first ones in the tile.
  __device__ static void prefetch(const TmaParams& params, int row, int col, int batch) {
    if (params.epilogue.has_terms) {
      for (int i = 0; i < kConfig.m64_blocks; ++i)
        tile::prefetch(params.epilogue, tile::window(params.extent, row + i * 64, col, batch),
                       kConfig.n);
    }
    if (params.epilogue.scaled)
      tile::prefetch_scales(params.epilogue, tile::window(params.extent, row, col, batch),
                            kConfig.n);
  }

  // Stores 16 rows of the tile. smem_d is the staging buffer of this warp.
  __device__ static void store(const TmaParams& params, char* smem_d, int warpgroup,
                               const Register (&fragment)[kRegisters], int row, int col,
                               int batch) {
    const Epilogue& epilogue = params.epilogue;
    if constexpr (kConfig.tma_stores_columns()) {
      char* warpgroup_smem_d = smem_d - threadIdx.x / 32 % 4 * kStagingBytes;  // of the warpgroup
      if (params.tma_store == TmaStore::columns)
        return tile::stage_columns<kConfig.column_store_dtype(), kConfig.n>(warpgroup_smem_d,
                                                                            warpgroup, fragment);
    }
    const TensorMap* map = params.tma_store == TmaStore::rows ? &params.out : nullptr;
    bool unrolled = epilogue.unrolled && map != nullptr;
    if constexpr (kRowOrder == tile::RowOrder::interleaved) {
      const tile::Window window = tile::window<kRowOrder>(params.extent, row, col, batch);
      if (tile::all_columns_inside(epilogue, window, kConfig.n)) {
        if (tile::store_accumulators<kConfig.accumulator>(epilogue, window, fragment)) return;
        unrolled = epilogue.unrolled && bits(epilogue.out_dtype) == 16;
      }
    }
    if (unrolled && epilogue.out_dtype == DType::bf16)
      tile::store_unrolled<kConfig.n, kUnrolledUnit, DType::bf16, kRowOrder>(
          epilogue, params.extent, map, smem_d, fragment, row, col, batch);
    else if (unrolled && epilogue.out_dtype == DType::f16)
      tile::store_unrolled<kConfig.n, kUnrolledUnit, DType::f16, kRowOrder>(
          epilogue, params.extent, map, smem_d, fragment, row, col, batch);
    else if (kRowOrder == tile::RowOrder::native && unrolled && epilogue.out_dtype == kOut32)
      tile::store_unrolled<kConfig.n, kUnrolledUnit, kOut32, kRowOrder>(
          epilogue, params.extent, map, smem_d, fragment, row, col, batch);
    else
      tile::store_fragment<kConfig.n, kUnit, true, Value, kRowOrder>(
          epilogue, params.extent, map, smem_d, row, col, batch,
          [&](int unit, Value(&v)[kUnit / 2]) {
            tile::select_unit<kConfig.n / kUnit>(fragment, unit, v);
          });
  }

  // Called after the last tile: shared memory must outlive the last stores that read it.
  __device__ static void finish(const TmaParams& params, int warpgroup) {
    if (params.tma_store == TmaStore::rows) ptx::tma_store_wait_read<0>();
    if constexpr (kConfig.tma_stores_columns())
      if (params.tma_store == TmaStore::columns) tile::drain_store_warp(warpgroup);
  }
};

}  // namespace tcgemm::sm90
