// The sum of the slices of k that the CTAs of a cooperative launch have computed, through L2. A CTA
// stores the sums of its slices (kernels/sm90/grid_walk.cuh) and waits for the whole grid. With
// EpiloguePath::slices it then adds its part of all tiles. The other kernels with stream-K keep the
// sums of the first slice of a tile in registers, and add the others.
// docs/dev/kernels/few-rows.md has the other ways that were measured.
#pragma once

#include <algorithm>
#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/cluster.cuh"
#include "kernels/sm90/frame.cuh"
#include "kernels/sm90/grid_walk.cuh"
#include "kernels/sm90/shared_storage.cuh"
#include "ptx/grid.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment.cuh"
#include "tile/store.cuh"

namespace tcgemm::sm90 {

// Tiles are divided into units of 16 rows x 32 columns, and cluster i adds the units from
// i * units / clusters on. The sums of a slice lie as they lie in registers:
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

  // Stores the accumulators of a warp, whose first element is at (row, col) of the result.
  template <int kAll>
  __device__ static void store(const TmaParams& params, Cluster cluster, int place, int row,
                               int col, int warpgroup, Register (&accumulators)[kAll]) {
    static_assert(kAll == kConfig.n / 2);
    ptx::wgmma_results(accumulators);
    const int warp = warpgroup * 4 + threadIdx.x / 32 % 4;
    char* const to = sums(params, cluster, place) + warp * kUnitBytes + threadIdx.x % 32 * 16;
    // The last CTAs of a cluster may have no row, or no column, inside.
    if (row >= params.extent.m || col >= params.extent.n) return;
#pragma unroll
    for (int i = 0; i < kAll; i += 4)
      *reinterpret_cast<uint4*>(to + vector_offset(i)) = tile::vector_of(&accumulators[i]);
  }

  // Adds the sums of the other slices of a tile to those of its first slice, which has this place.
  // The other CTAs have stored theirs. kRegistersAhead: the vectors of one part of the accumulators
  // are added while those of the next part are loaded.
  template <int kRegistersAhead, int kAll>
  __device__ static void add_others(const TmaParams& params, Cluster cluster, int place, int row,
                                    int col, int warpgroup, Register (&accumulators)[kAll]) {
    static_assert(kAll == kConfig.n / 2 && kAll % (2 * kRegistersAhead) == 0);
    constexpr int kParts = kAll / kRegistersAhead;
    ptx::wgmma_results(accumulators);
    if (row >= params.extent.m || col >= params.extent.n) return;
    const int warp = warpgroup * 4 + threadIdx.x / 32 % 4;
    const int tile = place - static_cast<int>(cluster.index());
    const std::int64_t pitch = std::int64_t(cluster.size()) * kConfig.slice_bytes();
    const char* from =
        sums(params, cluster, place) + warp * kUnitBytes + threadIdx.x % 32 * 16 + pitch;
    int left = SlicesOfTile(params.slices, tile).count - 1;
    if (left == 0) return;
    uint4 words[2][kRegistersAhead / 4];
    const auto load = [&](const char* slice, int part) {
#pragma unroll
      for (int i = 0; i < kRegistersAhead / 4; ++i)
        words[part % 2][i] = __ldcg(
            reinterpret_cast<const uint4*>(slice + vector_offset(part * kRegistersAhead + i * 4)));
    };
    load(from, 0);
#pragma unroll 1
    for (; left > 0; --left) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        if (part + 1 < kParts)
          load(from, part + 1);
        else if (left > 1)
          load(from + pitch, 0);
#pragma unroll
        for (int i = 0; i < kRegistersAhead / 4; ++i)
          tile::add_vector(&accumulators[part * kRegistersAhead + i * 4], words[part % 2][i]);
      }
      from += pitch;
    }
  }

  // Waits until all CTAs have stored their sums. Each consumer warp calls it, or arrive().
  __device__ static void wait(int warp) {
    ptx::named_barrier_sync(kConsumers, kWarps * 32);
    if (warp == 0 && threadIdx.x % 32 == 0) {
      ptx::GridBarrier barrier;
      barrier.arrive();
      barrier.wait();
    }
    ptx::named_barrier_sync(kConsumers, kWarps * 32);
  }
  // Of a CTA that needs no sums of the others.
  __device__ static void arrive(int warp) {
    ptx::named_barrier_sync(kConsumers, kWarps * 32);
    if (warp == 0 && threadIdx.x % 32 == 0) ptx::GridBarrier().arrive();
  }

  // Adds and stores the units of this CTA. Each consumer warp calls it, after wait(). smem_d: the
  // staging buffer of the warp.
  __device__ static void add(const TmaParams& params, const SharedStorage<kConfig>& shared,
                             char* smem_d, Cluster cluster, int warp) {
    const int clusters = gridDim.x / cluster.size_m, index = cluster.index();
    const int units = static_cast<int>(params.tiling.total) * kUnits;
    const int end = (index + 1) * units / clusters;
#pragma unroll 1
    for (int first = index * units / clusters; first < end;) {
      const int tile = first / kUnits, last = min(end, (tile + 1) * kUnits);
      add_tile(params, shared, smem_d, cluster, warp, tile, first % kUnits, last - tile * kUnits);
      first = last;
    }
  }

 private:
  static constexpr int kVectorBytes = 32 * 16;
  static constexpr int kUnitBytes = kRegisters / 4 * kVectorBytes;
  static constexpr int kMostGroups = kMostSlices / kSlicesOfWarp;
  static constexpr int kConsumers = 11;  // a named barrier
  // The sums of groups of all units that the warps add at one time. Two warps or more share one.
  static_assert(kWarps / 2 * kMostGroups * kUnitBytes <= kConfig.stages * kConfig.stage_bytes());

  // Adds the units of a tile from `first` to `end`.
  __device__ static void add_tile(const TmaParams& params, const SharedStorage<kConfig>& shared,
                                  char* smem_d, Cluster cluster, int warp, int tile, int first,
                                  int end) {
    const tile::TileCoord at = tile::tile_at(params.tiling, tile);
    const int tile_row = Frame<kConfig>::row(at, cluster);
    const int tile_col = Frame<kConfig>::col(at, cluster);
    const SlicesOfTile slices(params.slices, tile);
    const std::int64_t pitch = std::int64_t(cluster.size()) * kConfig.slice_bytes();
    const int groups = (slices.count + kSlicesOfWarp - 1) / kSlicesOfWarp;
    int warps_a_unit = 1;
    while (warps_a_unit < min(groups, kWarps)) warps_a_unit *= 2;
    const int part = warp % warps_a_unit;
#pragma unroll 1
    for (int base = first; base < end; base += kWarps / warps_a_unit) {
      const int unit = base + warp / warps_a_unit;
      const int row = tile_row + unit % kWarps * 16, col = tile_col + unit / kWarps * kUnitColumns;
      const bool is_inside = unit < end && row < params.extent.m && col < params.extent.n;
      const char* const from =
          sums(params, cluster, slices.place) + unit * kUnitBytes + threadIdx.x % 32 * 16;
      Register v[kRegisters];
      if (groups > 1) {
        const std::uint32_t place = shared.stages + threadIdx.x % 32 * 16 +
                                    warp / warps_a_unit * (kMostGroups * kUnitBytes);
        ptx::named_barrier_sync(kConsumers, kWarps * 32);  // the sums of the last unit were read
        // The sums of group 0 stay in registers of the first warp of the unit.
        for (int group = part == 0 ? warps_a_unit : part; is_inside && group < groups;
             group += warps_a_unit) {
          add_slices(from, pitch, group * kSlicesOfWarp, slices.count, v);
          visit_vectors(v, [&](int i, Register* vector) {
            ptx::store_shared_vector(place + group * kUnitBytes + i * kVectorBytes,
                                     tile::vector_of(vector));
          });
        }
        if (is_inside && part == 0) add_slices(from, pitch, 0, slices.count, v);
        ptx::named_barrier_sync(kConsumers, kWarps * 32);
        for (int group = 1; is_inside && part == 0 && group < groups; ++group)
          visit_vectors(v, [&](int i, Register* vector) {
            tile::add_vector(
                vector, ptx::load_shared_vector(place + group * kUnitBytes + i * kVectorBytes));
          });
      } else if (is_inside) {
        add_slices(from, pitch, 0, slices.count, v);
      }
      if (is_inside && part == 0)
        tile::store_fragment<kUnitColumns, kUnitColumns, false, Value>(
            params.epilogue, params.extent, nullptr, smem_d, row, col, at.batch,
            [&](int, Value(&values)[kRegisters]) {
#pragma unroll
              for (int i = 0; i < kRegisters; ++i) values[i] = v[i];
            });
    }
  }

  // The place of registers i to i + 3 of a lane.
  static constexpr int vector_offset(int i) {
    return i / kRegisters * kWarps * kUnitBytes + i % kRegisters / 4 * kVectorBytes;
  }
  // The sums of this CTA of a cluster at a place.
  __device__ static char* sums(const TmaParams& params, Cluster cluster, int place) {
    const std::int64_t index =
        std::int64_t(place) * cluster.size() + cluster.rank_m + cluster.rank_n * cluster.size_m;
    return static_cast<char*>(params.partial_sums) + index * kConfig.slice_bytes();
  }

  // v: the sum of a group: of up to kSlicesOfWarp slices from `first` on. They are loaded at once.
  // pitch: the bytes from a slice to the next one.
  __device__ static void add_slices(const char* from, std::int64_t pitch, int first, int slices,
                                    Register (&v)[kRegisters]) {
    uint4 words[kSlicesOfWarp][kRegisters / 4];
#pragma unroll
    for (int i = 0; i < kSlicesOfWarp; ++i) {
      if (first + i >= slices) break;
      const char* const slice = from + (first + i) * pitch;
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
