// The epilogue of a consumer warp for accumulators of 32 bits: it chooses the store path of a
// fragment, 16 rows of the tile. The paths are in tile/store.cuh, tile/unrolled.cuh,
// tile/store_columns.cuh, tile/tma_store_columns.cuh and tile/transposed.cuh.
#pragma once

#include <numeric>

#include "catalog.h"
#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/tma.cuh"
#include "tile/fragment.cuh"
#include "tile/store.cuh"
#include "tile/store_columns.cuh"
#include "tile/tma_store_columns.cuh"
#include "tile/transposed.cuh"
#include "tile/unrolled.cuh"

namespace tcgemm::sm90 {

// Columns that the epilogue works on at a time: as many as there are registers for beside the
// accumulators. The epilogue of s32 has its values twice, as s32 and as f32.
constexpr int epilogue_columns(const GemmConfig& config) {
  const bool s32 = config.accumulator == DType::s32, interleaved = config.interleaved_rows();
  const bool few_registers = config.warpgroups >= 3 || config.is_packed_mma();
  if (s32 + interleaved + few_registers >= 2) return 16;
  return s32 || interleaved || config.warpgroups >= 3 || config.m64_blocks == 2 || config.promotes()
             ? 32
             : 64;
}

template <GemmConfig kConfig, EpiloguePath kPath>
struct FragmentEpilogue {
  // The store warp is in use for TmaStore::columns. EpiloguePath::columns has no other stores.
  static constexpr bool kTransposes = kPath == EpiloguePath::columns;
  static constexpr bool kStoresColumns =
      kTransposes || (kPath == EpiloguePath::plain && kConfig.tma_stores_columns());
  using Value = tile::Value<kConfig.accumulator>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kRegisters = tile::registers<kConfig.accumulator>(kConfig.n);
  static constexpr tile::RowOrder kRowOrder =
      kConfig.interleaved_rows() ? tile::RowOrder::interleaved : tile::RowOrder::native;
  static constexpr int kUnit = std::gcd(kConfig.n, epilogue_columns(kConfig));
  static constexpr int kUnrolledUnit = kConfig.warpgroups >= 3 || kConfig.is_packed_mma() ? 16 : 32;
  // The units whose addends have registers during the mainloop: with one more, 128x256 spills.
  // Another warpgroup's mainloop hides the epilogue of pingpong, so that needs none. Three
  // warpgroups lack the registers.
  static constexpr bool kHasEarlyAddends =
      kPath == EpiloguePath::fused && kConfig.mainloop == Mainloop::dense &&
      kConfig.m64_blocks == 1 && kConfig.warpgroups < 3 && kConfig.n > 64 && kConfig.n <= 256;
  static constexpr int kEarlyAddends = kHasEarlyAddends ? kConfig.n / kUnrolledUnit - 3 : 0;
  // Layers multiply in TN, 16-bit and e4m3. The other kernels have loops, which compile in a third
  // of the time. Gradients in e5m2 have no terms.
  static constexpr bool kUnrollsTerms = kConfig.layout == Layout::TN && kConfig.n >= 128 &&
                                        bits(kConfig.input) <= 16 && !kConfig.block_scaled() &&
                                        kConfig.input == kConfig.input_b &&
                                        kConfig.accumulator == DType::f32;
  static constexpr tile::UnrolledTraits kUnrolled = {
      .columns = kConfig.n,
      .unit = kUnrolledUnit,
      .row_order = kRowOrder,
      .staging_sets = kConfig.staging_sets(),
      .staging_set_bytes = kConfig.staging_set_bytes(),
      .fused = kPath == EpiloguePath::fused,
      .early_addends = kEarlyAddends,
      .unrolled_terms = kUnrollsTerms,
      .activated_addends = kConfig.warpgroups < 3,
      .column_scales = bits(kConfig.input) == 8,
      .clips_rows = kConfig.grouped == Axis::m};
  using Unrolled = tile::UnrolledEpilogue<kUnrolled, Register>;
  static constexpr DType kTransposedDtype =
      kConfig.input == DType::tf32 ? DType::f32 : kConfig.column_store_dtype();
  static constexpr tile::TransposedTraits kTransposed = {
      .columns = kConfig.n,
      .unit = std::gcd(std::gcd(kConfig.n, kUnrolledUnit), kConfig.store_columns()),
      .out = kTransposedDtype,
      .plain_scales = bits(kConfig.input) == 8};
  using Transposed = tile::TransposedEpilogue<kTransposed, Register>;
  __device__ static const TensorMap* result_map(const TmaParams& params) {
    return params.tma_store == TmaStore::rows ? &params.out : nullptr;
  }

  // Epilogue::shared_vector for the columns of the tile: a value for each thread of the warpgroup
  // and 128 columns. load() precedes the mainloop, which hides its latency. publish() follows it:
  // no warp of the warpgroup is past the mainloop before all have left the epilogue of the tile
  // before.
  class SharedVector {
   public:
    __device__ void load(const TmaParams& params, int col, int batch) {
      const TensorRef& source = params.epilogue.shared_vector;
      if (source.data == nullptr) return;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int column = i * 128 + threadIdx.x % 128;
        if (column >= kConfig.n || col + column >= params.extent.n) continue;
        const std::int64_t offset = batch * source.stride_batch + col + column;
        words_[i] = source.dtype == DType::f32
                        ? static_cast<const std::uint32_t*>(source.data)[offset]
                        : static_cast<const std::uint16_t*>(source.data)[offset];
      }
    }

    __device__ void publish(const TmaParams& params, float* shared, int warpgroup) const {
      const TensorRef& source = params.epilogue.shared_vector;
      if (source.data == nullptr) return;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const int column = i * 128 + threadIdx.x % 128;
        if (column < kConfig.n)
          shared[column] = source.dtype == DType::f32   ? __uint_as_float(words_[i])
                           : source.dtype == DType::f16 ? ptx::unpack_f16(words_[i]).x
                                                        : ptx::unpack_bf16(words_[i]).x;
      }
      ptx::named_barrier_sync(kVectorBarrier + warpgroup, 128);
    }

   private:
    static constexpr int kValues = (kConfig.n + 127) / 128;
    // After the barriers of tile/tma_store_columns.cuh. Two warpgroups have up to 8 of these, and
    // three up to 12, which use them and a vector together with EpiloguePath::columns alone.
    static constexpr int kVectorBarrier = kTransposes ? 13 : 12;

    std::uint32_t words_[kValues] = {};
  };

  // The addends of the warp's rows of a tile.
  using Addends = typename Unrolled::Addends[kConfig.m64_blocks];

  // Loads or prefetches the operands of the epilogue. `row` and `col` are the warp's first ones in
  // the tile. extent: of the result; its rows end with the group of a grouped product.
  __device__ __forceinline__ static void load(const TmaParams& params, const Extent& extent,
                                              int row, int col, int batch, Addends& addends) {
    if constexpr (kHasEarlyAddends)
      Unrolled(params.epilogue, extent, nullptr, nullptr, nullptr, row, col, batch)
          .load_addends(addends[0]);
    if (kPath != EpiloguePath::plain && params.epilogue.has_terms) {
      for (int i = 0; i < kConfig.m64_blocks; ++i) {
        const tile::Window window = tile::window(extent, row + i * 64, col, batch);
        if constexpr (kTransposes)
          Transposed::prefetch(params.epilogue, window);
        else
          tile::prefetch(params.epilogue, window, kConfig.n);
      }
    }
    if (params.epilogue.scaled)
      tile::prefetch_scales(params.epilogue, tile::window(extent, row, col, batch), kConfig.n);
  }

  // Stores 16 rows of the tile. smem_d is the warp's first staging buffer; `vector` is what
  // publish() has written.
  __device__ __forceinline__ static void store(const TmaParams& params, const Extent& extent,
                                               char* smem_d, const float* vector, int warpgroup,
                                               const Register (&fragment)[kRegisters],
                                               const typename Unrolled::Addends& addends, int row,
                                               int col, int batch) {
    const Epilogue& epilogue = params.epilogue;
    const TensorMap* map = result_map(params);
    [[maybe_unused]] char* warpgroup_smem_d = smem_d - threadIdx.x / 32 % 4 * kStagingBytes;
    if constexpr (kTransposes) {
      Transposed(epilogue, extent, warpgroup_smem_d, vector, warpgroup, row, col, batch)
          .store(fragment);
      return;
    }
    if constexpr (kPath == EpiloguePath::plain && kConfig.tma_stores_columns()) {
      if (params.tma_store == TmaStore::columns)
        return tile::stage_columns<kConfig.column_store_dtype(), kConfig.n>(warpgroup_smem_d,
                                                                            warpgroup, fragment);
    }
    [[maybe_unused]] const auto unrolled = [&] {
      return Unrolled(epilogue, extent, map, smem_d, vector, row, col, batch);
    };
    if constexpr (kRowOrder == tile::RowOrder::interleaved) {
      const tile::Window window = tile::window<kRowOrder>(extent, row, col, batch);
      const bool whole = tile::all_columns_inside(epilogue, window, kConfig.n);
      constexpr bool kRolled = kPath == EpiloguePath::rolled;
      // Short products with a packed weight: to fetch the instructions of the other path takes a
      // tenth of their time.
      constexpr bool kShort = kConfig.has_packed_weight() && kConfig.sums_in_cluster();
      constexpr DType kOut = kRolled ? kConfig.accumulator : kConfig.column_store_dtype();
      if constexpr (kRolled || kShort)
        if ((kRolled || map == nullptr) && whole &&
            tile::store_accumulators<kOut>(epilogue, window, fragment))
          return;
      if constexpr (!kRolled)
        if (map == nullptr && !whole) return unrolled().store_last_columns(fragment, addends);
    }
    if constexpr (kPath == EpiloguePath::rolled) {
      tile::store_fragment<kConfig.n, kUnit, true, Value, kRowOrder>(
          epilogue, extent, map, smem_d, row, col, batch, [&](int unit, Value(&v)[kUnit / 2]) {
            tile::select_unit<kConfig.n / kUnit>(fragment, unit, v);
          });
    } else if constexpr (!kTransposes) {
      static_assert(kPath == EpiloguePath::plain || kPath == EpiloguePath::fused);
      unrolled().store(fragment, addends);
    }
  }

  // Called after the last tile: shared memory must outlive the last stores that read it.
  __device__ static void finish(const TmaParams& params, int warpgroup) {
    if (params.tma_store == TmaStore::rows) ptx::tma_store_wait_read<0>();
    if constexpr (kTransposes || kConfig.tma_stores_columns())
      if (params.tma_store == TmaStore::columns) tile::drain_store_warp(warpgroup);
  }
};

}  // namespace tcgemm::sm90
