// Stores of column-major 16-bit results by TMA, for fragments with RowOrder::interleaved.
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
//   buffer:  32 columns of the result, each in a row of 128 bytes: 64 elements of 16 bits
//
// A lane writes pairs of adjacent rows. There are no bank conflicts: lanes with the same g write
// different columns, and the swizzle puts these into different banks.

inline constexpr int kWarpgroupThreads = 128;
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
  __device__ StoreWarp(const TensorMap* map, char* smem_d, int warpgroup, L2Policy policy)
      : map_(map), smem_d_(ptx::shared_address(smem_d)), warpgroup_(warpgroup), policy_(policy) {}

  __device__ void begin() const { release_buffer(0); }

  // Stores 64 rows of the warpgroup from `row` on, and `columns` columns from `col` on.
  __device__ void store(int columns, int row, int col, int batch) const {
#pragma unroll 1
    for (int index = 0; index < columns / kStoreColumns; ++index) {
      ptx::named_barrier_sync(full_barrier(warpgroup_, index), kBarrierThreads);
      if (ptx::elect()) {
        ptx::tma_store(map_, smem_d_ + index % 2 * kBufferBytes, row, col + index * kStoreColumns,
                       batch, policy_);
        ptx::tma_store_wait_read<1>();  // the previous buffer is free
      }
      __syncwarp();
      release_buffer(index + 1);
    }
  }

  __device__ void end() const { ptx::tma_store_wait_read<0>(); }

 private:
  __device__ void release_buffer(int index) const {
    ptx::named_barrier_arrive(free_barrier(warpgroup_, index), kBarrierThreads);
  }

  const TensorMap* map_;
  std::uint32_t smem_d_;
  int warpgroup_;
  L2Policy policy_;
};

}  // namespace tcgemm::tile
