// Column-major results of 16 bits of fragments whose lanes hold neighbours of a column
// (Rows::neighbours), by TMA: the 64 rows of a warpgroup are turned in the slabs of its four warps,
// of which one half is packed while the other one leaves.
//
//   half: 32 columns | a line of 128 bytes: 64 rows of a column
//
// Pairs of neighbours go into lines without bank conflicts: the lanes of one g have different
// columns, whose chunks the swizzle sets apart.
//
// bf16 on an H200, 2048^3 and 4096^3: 19.9 and 139 us; with pairs straight from registers
// (store_columns.cuh) 21.8 and 142 to 146. Rolled up, with a selection of registers for each half
// (128 instructions), it took 22.0 and 165, and for s32 and f32 results a fifth more than pairs.
#pragma once

#include <cstdint>
#include <utility>

#include "catalog.h"
#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/fence.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"
#include "tile/fragment.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::tile {

inline constexpr int kWarpgroup = 128;
inline constexpr int kHalfBytes = 2 * kSlabBytes;

// The lane's pairs of the kIndex-th 32 columns of a fragment.
template <int kIndex, class Fragment>
__device__ inline void pack_columns(DType out, char* half, const Fragment* fragment) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % kWarpgroup / 32 * kBoxRows + lane / 4 * 2;
#pragma unroll
  for (int j = 0; j < kSendColumns / 8; ++j) {
    const auto low = pair(fragment, kIndex * (kSendColumns / 8) + j, 0);
    const auto high = pair(fragment, kIndex * (kSendColumns / 8) + j, 1);
    const int col = 8 * j + lane % 4 * 2;
    const auto put = [&](int column, float x, float y) {
      *reinterpret_cast<std::uint32_t*>(half + swizzle128(column, row / 8) + row % 8 * 2) =
          out == DType::bf16 ? ptx::pack<DType::bf16>(x, y) : ptx::pack<DType::f16>(x, y);
    };
    put(col, float(low.x), float(high.x));
    put(col + 1, float(low.y), float(high.y));
  }
}

template <int kIndex, class Fragment>
__device__ inline void send_half(DType out, const TensorMap* map, char* slabs, int barrier,
                                 const Fragment* fragment, int row, int col, int batch) {
  char* half = slabs + kIndex % 2 * kHalfBytes;
  pack_columns<kIndex>(out, half, fragment);
  ptx::fence_proxy_async();
  // Behind the barrier this half is whole, and the other one may be packed again.
  const bool leads = threadIdx.x % kWarpgroup == 0;
  if (leads) ptx::tma_store_wait_read();
  ptx::named_barrier_sync(barrier, kWarpgroup);
  if (leads)
    ptx::tma_store(map, ptx::shared_address(half), row, col + kIndex * kSendColumns, batch);
}

// 64 x kColumns accumulators of a warpgroup, of which this warp has 16 rows from `row` on, as they
// are. All four warps come here; `slabs` are theirs, `barrier` the warpgroup's own.
template <int kColumns, class Fragment>
__device__ inline void send_columns(DType out, const TensorMap* map, char* slabs, int barrier,
                                    const Fragment* fragment, int row, int col, int batch) {
  constexpr int kHalves = kColumns / kSendColumns;
  static_assert(kHalves % 2 == 0, "the next tile begins with the first half again");
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (send_half<kIndex>(out, map, slabs, barrier, fragment, row, col, batch), ...);
  }(std::make_integer_sequence<int, kHalves>{});
}

}  // namespace tcgemm::tile
