// The sum of the slices of k that the CTAs of a cooperative launch have computed, through L2. Every
// CTA has one slice of one tile. It stores its sums, waits for the whole grid, and adds a part of
// the tile for all slices.
// docs/dev/kernels/few-rows.md has the other ways that were measured.
#pragma once

#include <algorithm>
#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/shared_storage.cuh"
#include "ptx/grid.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/store.cuh"

namespace tcgemm::sm90 {

// The slice of a tile that a CTA has.
struct TileSlice {
  int row, col, matrix, slice;
};

// A tile is divided into units of 16 rows x 32 columns, and slice i adds the units from
// i * units / slices on. The sums of a slice lie as they lie in registers:
//
//   unit 0: vector 0 of 32 lanes, .., vector 3 | unit 1 | ..      the rows of a unit are a warp's
//
// A warp adds a group of up to kSlicesOfWarp slices of a unit, in ascending order. If there are
// more, several warps share the unit, and the sums of groups are added in ascending order: the same
// bits as those of the kernel that adds slices (passes/add_slices.cuh).
template <GemmConfig kConfig>
struct GridSum {
  using Value = tile::Value<kConfig.accumulator>;
  using Register = tile::Register<kConfig.accumulator>;
  static constexpr int kWarps = kConfig.row_groups() * 4;
  static constexpr int kUnitColumns = 32;
  static constexpr int kUnits = kWarps * kConfig.n / kUnitColumns;
  static constexpr int kRegisters = kUnitColumns / 2;  // of a lane in a unit
  static_assert(kConfig.n % kUnitColumns == 0);

  // Stores the accumulators of a warp.
  template <int kAll>
  __device__ static void store(const TmaParams& params, const TileSlice& tile, int warpgroup,
                               Register (&accumulators)[kAll]) {
    static_assert(kAll == kConfig.n / 2);
    ptx::wgmma_results(accumulators);
    const int warp = warpgroup * 4 + threadIdx.x / 32 % 4;
    char* const to = sums(params, tile) + std::int64_t(tile.slice) * kConfig.slice_bytes() +
                     warp * kUnitBytes + threadIdx.x % 32 * 16;
    // The last CTAs of a cluster may have no row, or no column, inside.
    if (tile.row + warp * 16 >= params.extent.m || tile.col >= params.extent.n) return;
#pragma unroll
    for (int i = 0; i < kAll; i += 4)
      *reinterpret_cast<uint4*>(to + i / kRegisters * kWarps * kUnitBytes +
                                i % kRegisters / 4 * kVectorBytes) =
          tile::vector_of(&accumulators[i]);
  }

  // Waits until all CTAs have stored their sums. Each consumer warp calls it.
  __device__ static void wait(int warp) {
    ptx::named_barrier_sync(kConsumers, kWarps * 32);
    if (warp == 0 && threadIdx.x % 32 == 0) ptx::grid_sync();
    ptx::named_barrier_sync(kConsumers, kWarps * 32);
  }

  // Adds and stores the units of this slice. Each consumer warp of the CTA calls it, after wait().
  // smem_d: the staging buffer of the warp.
  __device__ static void add(const TmaParams& params, const SharedStorage<kConfig>& shared,
                             char* smem_d, const TileSlice& tile, int warp) {
    const int slices = params.slices.count;
    const int groups = (slices + kSlicesOfWarp - 1) / kSlicesOfWarp;
    int warps_a_unit = 1;
    while (warps_a_unit < min(groups, kWarps)) warps_a_unit *= 2;
    const int part = warp % warps_a_unit, end = (tile.slice + 1) * kUnits / slices;
#pragma unroll 1
    for (int base = tile.slice * kUnits / slices; base < end; base += kWarps / warps_a_unit) {
      const int unit = base + warp / warps_a_unit;
      const int row = tile.row + unit % kWarps * 16, col = tile.col + unit / kWarps * kUnitColumns;
      const bool is_inside = unit < end && row < params.extent.m && col < params.extent.n;
      const char* const from = sums(params, tile) + unit * kUnitBytes + threadIdx.x % 32 * 16;
      Register v[kRegisters];
      if (groups > 1) {
        const std::uint32_t place = shared.stages + threadIdx.x % 32 * 16 +
                                    warp / warps_a_unit * (kMostGroups * kUnitBytes);
        ptx::named_barrier_sync(kConsumers, kWarps * 32);  // the sums of the last unit were read
        // The sums of group 0 stay in registers of the first warp of the unit.
        for (int group = part == 0 ? warps_a_unit : part; is_inside && group < groups;
             group += warps_a_unit) {
          add_slices(from, group * kSlicesOfWarp, slices, v);
          visit_vectors(v, [&](int i, Register* vector) {
            ptx::store_shared_vector(place + group * kUnitBytes + i * kVectorBytes,
                                     tile::vector_of(vector));
          });
        }
        if (is_inside && part == 0) add_slices(from, 0, slices, v);
        ptx::named_barrier_sync(kConsumers, kWarps * 32);
        for (int group = 1; is_inside && part == 0 && group < groups; ++group)
          visit_vectors(v, [&](int i, Register* vector) {
            tile::add_vector(
                vector, ptx::load_shared_vector(place + group * kUnitBytes + i * kVectorBytes));
          });
      } else if (is_inside) {
        add_slices(from, 0, slices, v);
      }
      if (is_inside && part == 0)
        tile::store_fragment<kUnitColumns, kUnitColumns, false, Value>(
            params.epilogue, params.extent, nullptr, smem_d, row, col, tile.matrix,
            [&](int, Value(&values)[kRegisters]) {
#pragma unroll
              for (int i = 0; i < kRegisters; ++i) values[i] = v[i];
            });
    }
  }

 private:
  static constexpr int kVectorBytes = 32 * 16;
  static constexpr int kUnitBytes = kRegisters / 4 * kVectorBytes;
  static constexpr int kMostGroups = kMostSlices / kSlicesOfWarp;
  static constexpr int kConsumers = 11;  // a named barrier
  // The sums of groups of all units that the warps add at one time. Two warps or more share one.
  static_assert(kWarps / 2 * kMostGroups * kUnitBytes <= kConfig.stages * kConfig.stage_bytes());

  // The sums of slice 0 of a tile.
  __device__ static char* sums(const TmaParams& params, const TileSlice& tile) {
    const int tiles_m = (params.extent.m + kConfig.tile_m() - 1) / kConfig.tile_m();
    const int tiles_n = (params.extent.n + kConfig.tile_n() - 1) / kConfig.tile_n();
    const int index = (tile.matrix * tiles_m + tile.row / kConfig.tile_m()) * tiles_n +
                      tile.col / kConfig.tile_n();
    return static_cast<char*>(params.partial_sums) +
           std::int64_t(index) * params.slices.count * kConfig.slice_bytes();
  }

  // v: the sum of a group: of up to kSlicesOfWarp slices from `first` on. They are loaded at once.
  __device__ static void add_slices(const char* from, int first, int slices,
                                    Register (&v)[kRegisters]) {
    uint4 words[kSlicesOfWarp][kRegisters / 4];
#pragma unroll
    for (int i = 0; i < kSlicesOfWarp; ++i) {
      if (first + i >= slices) break;
      const char* const slice = from + std::int64_t(first + i) * kConfig.slice_bytes();
#pragma unroll
      for (int j = 0; j < kRegisters / 4; ++j)
        words[i][j] = __ldcg(reinterpret_cast<const uint4*>(slice + j * kVectorBytes));
    }
#pragma unroll
    for (int i = 0; i < kSlicesOfWarp; ++i) {
      if (first + i >= slices) break;
      visit_vectors(v, [&](int j, Register* vector) {
        i == 0 ? tile::set_vector(vector, words[i][j]) : tile::add_vector(vector, words[i][j]);
      });
    }
  }

  // Calls visit(index, registers) for the vectors of a lane.
  template <class Visit>
  __device__ static void visit_vectors(Register (&v)[kRegisters], const Visit& visit) {
#pragma unroll
    for (int i = 0; i < kRegisters / 4; ++i) visit(i, &v[4 * i]);
  }
};

}  // namespace tcgemm::sm90
