// Stores of column-major results by TMA.
// docs/dev/kernels/column_stores.md says what was tried.
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

// The 64 rows of a warpgroup are transposed in the staging buffers of its four warps. Together
// these are two buffers of 64 rows x 32 columns: the warpgroup packs one while TMA reads the other.
// A store warp, which computes nothing, issues TMA and waits for it, since that takes longer than
// packing.
//
//   warpgroup    pack 0 | pack 1 |       | pack 2 |       | pack 3 | ..     buffers alternate
//   store warp          | store 0, wait  | store 1, wait  | store 2 | ..
//
//   buffer:  of 16 bits   32 columns, each in a row of 64 elements
//            of 8 bits    32 columns, in the first half of the buffer
//            of 32 bits   16 columns of the rows 0 to 31, then of the rows 32 to 63
//
// Fragments with RowOrder::interleaved: a lane writes pairs of adjacent rows. There are no bank
// conflicts: lanes with the same g write different columns, and the swizzle puts these into
// different banks. Fragments with RowOrder::native: see tile/transposed_unit.cuh.

inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupRows = 64;
inline constexpr int kBufferBytes = 2 * kStagingBytes;
inline constexpr int kBarrierThreads = kWarpgroupThreads + 32;  // threads at the barriers below

// Named barriers of buffer index % 2 of a warpgroup. full: the warpgroup has filled the buffer.
// free: TMA has read the buffer, and the warpgroup may pack it again.
__device__ inline int full_barrier(int warpgroup, int index) {
  return 1 + 4 * warpgroup + index % 2;
}
__device__ inline int free_barrier(int warpgroup, int index) {
  return 3 + 4 * warpgroup + index % 2;
}

// Buffers that a tile of n columns fills. The last one may be filled by half.
constexpr int column_buffers(int n, int columns) { return (n + columns - 1) / columns; }

// Writes the lane's pairs of box kIndex, 32 columns of the fragment, to a buffer.
template <DType kOut, int kIndex, class Fragment>
__device__ inline void pack_buffer(char* buffer, const Fragment* fragment) {
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x % kWarpgroupThreads / 32 * kBoxRows + lane / 4 * 2;
#pragma unroll
  for (int j = 0; j < kStoreColumns / 8; ++j) {
    const auto low = pair(fragment, kIndex * (kStoreColumns / 8) + j, 0);
    const auto high = pair(fragment, kIndex * (kStoreColumns / 8) + j, 1);
    const int col = 8 * j + lane % 4 * 2;
    const auto store_pair = [&](int column, float x, float y) {
      *reinterpret_cast<std::uint32_t*>(buffer + swizzle128(column, row / 8) + row % 8 * 2) =
          ptx::pack<kOut>(x, y);
    };
    store_pair(col, float(low.x), float(high.x));
    store_pair(col + 1, float(low.y), float(high.y));
  }
}

template <DType kOut, int kIndex, class Fragment>
__device__ inline void stage_buffer(char* smem_d, int warpgroup, const Fragment* fragment) {
  ptx::named_barrier_sync(free_barrier(warpgroup, kIndex), kBarrierThreads);
  pack_buffer<kOut, kIndex>(smem_d + kIndex % 2 * kBufferBytes, fragment);
  ptx::fence_proxy_async();
  ptx::named_barrier_arrive(full_barrier(warpgroup, kIndex), kBarrierThreads);
}

// Converts 64 x kColumns accumulators of a warpgroup to kOut, without an epilogue, and passes them
// to the store warp. All four warps must call it. smem_d is the staging memory of the warpgroup.
template <DType kOut, int kColumns, class Fragment>
__device__ inline void stage_columns(char* smem_d, int warpgroup, const Fragment* fragment) {
  constexpr int kBoxes = kColumns / kStoreColumns;
  static_assert(kBoxes % 2 == 0, "every tile begins with the first buffer");
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (stage_buffer<kOut, kIndex>(smem_d, warpgroup, fragment), ...);
  }(std::make_integer_sequence<int, kBoxes>{});
}

// After the last tile: consumes the store warp's last arrival at the free barrier, so that the
// named barrier stays balanced.
__device__ inline void drain_store_warp(int warpgroup) {
  ptx::named_barrier_sync(free_barrier(warpgroup, 0), kBarrierThreads);
}

// The store warp of a warpgroup. It calls begin(), then store() for each tile, then end().
class StoreWarp {
 public:
  __device__ StoreWarp(const TensorMap* map, char* smem_d, int warpgroup, DType out,
                       L2Policy policy)
      : map_(map),
        smem_d_(ptx::shared_address(smem_d)),
        warpgroup_(warpgroup),
        column_bytes_(kWarpgroupRows * addressable_bytes(out)),
        policy_(policy) {}

  __device__ void begin() const { release_buffer(0); }

  // Stores 64 rows of the warpgroup from `row` on, and kColumns columns from `col` on, of which a
  // buffer has kBufferColumns. A buffer of 32 columns is one box, or two of 16 columns if kColumns
  // is no multiple of 32. A buffer of 16 columns is two boxes of 32 rows.
  template <int kColumns, int kBufferColumns>
  __device__ void store(int row, int col, int batch) const {
    constexpr int kBuffers = column_buffers(kColumns, kBufferColumns);
    constexpr bool kHalvesRows = kBufferColumns < kStoreColumns;
    constexpr bool kHalvesColumns = !kHalvesRows && kColumns % kStoreColumns != 0;
#pragma unroll 1
    for (int index = 0; index < kBuffers; ++index) {
      ptx::named_barrier_sync(full_barrier(warpgroup_, index), kBarrierThreads);
      // The next tile begins with the first buffer. That is free when its mainloop has ended.
      const bool restarts = kBuffers % 2 != 0 && index + 1 == kBuffers;
      if (ptx::elect()) {
        const std::uint32_t buffer = smem_d_ + index % 2 * kBufferBytes;
        const int first = col + index * kBufferColumns;
        ptx::tma_store(map_, buffer, row, first, batch, policy_);
        const bool second_half = kHalvesRows || (kHalvesColumns && index + 1 < kBuffers);
        if (kHalvesRows)
          ptx::tma_store(map_, buffer + kBufferBytes / 2, row + kWarpgroupRows / 2, first, batch,
                         policy_);
        else if (second_half)
          ptx::tma_store(map_, buffer + kStoreColumns / 2 * column_bytes_, row,
                         first + kStoreColumns / 2, batch, policy_);
        // The previous buffer is free, or this one.
        if (restarts)
          ptx::tma_store_wait_read<0>();
        else if (second_half)
          ptx::tma_store_wait_read<2>();
        else
          ptx::tma_store_wait_read<1>();
      }
      __syncwarp();
      release_buffer(restarts ? 0 : index + 1);
    }
  }

  __device__ void end() const { ptx::tma_store_wait_read<0>(); }

 private:
  __device__ void release_buffer(int index) const {
    ptx::named_barrier_arrive(free_barrier(warpgroup_, index), kBarrierThreads);
  }

  const TensorMap* map_;
  std::uint32_t smem_d_;
  int warpgroup_, column_bytes_;
  L2Policy policy_;
};

}  // namespace tcgemm::tile
