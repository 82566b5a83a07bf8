// Column-major results of fragments whose lanes hold neighbours of a column (RowOrder::interleaved), by
// TMA: the 64 rows of a warpgroup are turned in the slabs of its four warps, of which one half is
// packed while the other one leaves. A warp that computes nothing sends for them: issuing TMA and
// waiting for it takes longer than packing.
//
//   warpgroup   pack 0 | pack 1 |      | pack 2 |      | pack 3 | ..     halves in turn
//   its sender         | send 0, await | send 1, await | send 2 | ..
//
//   half:  32 columns | a line of 128 bytes: 64 rows of a column, of 16 bits
//
// Pairs of neighbours go into lines without bank conflicts: the lanes of one g have different
// columns, whose chunks the swizzle sets apart.
//
// Of a tile of 8192 x 8192 x 2048 in e4m3 on an H200 15300 clocks pass, 4700 of them between its
// last product and the next one's first; where a thread of the warpgroup sent, 5400, and with four
// pieces of half the size 7600. Rolled up, with a selection of registers for each half (128
// instructions), bf16 4096^3 took a fifth longer. Results of 32 bits, in two boxes a half, took as
// long as in pairs straight from registers (store_columns.cuh).
#pragma once

#include <cstdint>
#include <utility>

#include "catalog.h"
#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"
#include "tile/fragment.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::tile {

inline constexpr int kWarpgroup = 128;
inline constexpr int kHalfBytes = 2 * kStagingBytes;
inline constexpr int kBarrierThreads = kWarpgroup + 32;  // threads at the barriers below

// Half `index` of a warpgroup is packed; it may be packed again.
__device__ inline int full_barrier(int warpgroup, int index) {
  return 1 + 4 * warpgroup + index % 2;
}
__device__ inline int free_barrier(int warpgroup, int index) {
  return 3 + 4 * warpgroup + index % 2;
}

// The lane's pairs of the kIndex-th half.
template <DType kOut, int kIndex, class Fragment>
__device__ inline void pack_half(char* half, const Fragment* fragment) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % kWarpgroup / 32 * kBoxRows + lane / 4 * 2;
#pragma unroll
  for (int j = 0; j < kStoreColumns / 8; ++j) {
    const auto low = pair(fragment, kIndex * (kStoreColumns / 8) + j, 0);
    const auto high = pair(fragment, kIndex * (kStoreColumns / 8) + j, 1);
    const int col = 8 * j + lane % 4 * 2;
    const auto put = [&](int column, float x, float y) {
      *reinterpret_cast<std::uint32_t*>(half + swizzle128(column, row / 8) + row % 8 * 2) =
          ptx::pack<kOut>(x, y);
    };
    put(col, float(low.x), float(high.x));
    put(col + 1, float(low.y), float(high.y));
  }
}

template <DType kOut, int kIndex, class Fragment>
__device__ inline void stage_half(char* smem_d, int warpgroup, const Fragment* fragment) {
  ptx::named_barrier_sync(free_barrier(warpgroup, kIndex), kBarrierThreads);
  pack_half<kOut, kIndex>(smem_d + kIndex % 2 * kHalfBytes, fragment);
  ptx::fence_proxy_async();
  ptx::named_barrier_arrive(full_barrier(warpgroup, kIndex), kBarrierThreads);
}

// Hands 64 x kColumns accumulators of a warpgroup, as kOut without more ado, to its sender. All
// four warps come here; `slabs` are theirs.
template <DType kOut, int kColumns, class Fragment>
__device__ inline void stage_columns(char* smem_d, int warpgroup, const Fragment* fragment) {
  constexpr int kHalves = kColumns / kStoreColumns;
  static_assert(kHalves % 2 == 0, "the next tile begins with the first half again");
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (stage_half<kOut, kIndex>(smem_d, warpgroup, fragment), ...);
  }(std::make_integer_sequence<int, kHalves>{});
}

// Behind the last tile: what the sender let the warpgroup pack has a taker.
__device__ inline void drain_store_warp(int warpgroup) {
  ptx::named_barrier_sync(free_barrier(warpgroup, 0), kBarrierThreads);
}

// The warp that sends what a warpgroup hands over: begin(), then send() for each tile, then end().
class StoreWarp {
 public:
  __device__ StoreWarp(const TensorMap* map, char* smem_d, int warpgroup)
      : map_(map), smem_d_(ptx::shared_address(smem_d)), warpgroup_(warpgroup) {}

  __device__ void begin() const { allow(0); }

  // The warpgroup's 64 rows from `row` on, of `columns` columns.
  __device__ void store(int columns, int row, int col, int batch) const {
#pragma unroll 1
    for (int index = 0; index < columns / kStoreColumns; ++index) {
      ptx::named_barrier_sync(full_barrier(warpgroup_, index), kBarrierThreads);
      if (ptx::elect()) {
        ptx::tma_store(map_, smem_d_ + index % 2 * kHalfBytes, row, col + index * kStoreColumns,
                       batch);
        ptx::tma_store_wait_read<1>();  // for the half before
      }
      __syncwarp();
      allow(index + 1);
    }
  }

  __device__ void end() const { ptx::tma_store_wait_read<0>(); }

 private:
  __device__ void allow(int index) const {
    ptx::named_barrier_arrive(free_barrier(warpgroup_, index), kBarrierThreads);
  }

  const TensorMap* map_;
  std::uint32_t smem_d_;
  int warpgroup_;
};

}  // namespace tcgemm::tile
