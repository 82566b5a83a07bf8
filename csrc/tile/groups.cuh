// The groups of a grouped product (Problem::grouped), which kernels find in offs: the host does not
// read it.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/operands.h"
#include "core/params.h"

namespace tcgemm::tile {

// Reads offs in chunks of 32 groups, one for each lane of a warp, the next chunk ahead. Whatever
// offs has, the groups follow one another and end inside the extent.
class GroupScan {
 public:
  int begin, end;  // of this lane's group, which is empty after the last one

  __device__ GroupScan(const GroupParams& groups, int extent)
      : groups_(groups), extent_(extent), ahead_(load(0)) {}

  // Goes to the next chunk. Returns false if there is none.
  __device__ bool next() {
    if (next_group_ >= groups_.count) return false;
    end = ahead_;
    ahead_ = load(next_group_ + 32);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(kWarp, end, step);
      if (lane() >= step) end = max(end, before);
    }
    end = max(end, last_);
    begin = __shfl_up_sync(kWarp, end, 1);
    if (lane() == 0) begin = last_;
    last_ = __shfl_sync(kWarp, end, 31);
    first_group_ = next_group_;
    next_group_ += 32;
    return true;
  }

  // Of the chunk.
  __device__ int first_group() const { return first_group_; }
  __device__ bool is_group() const { return first_group_ + lane() < groups_.count; }

  static constexpr unsigned kWarp = 0xffffffff;
  __device__ static int lane() { return threadIdx.x % 32; }

 private:
  __device__ int load(int chunk) const {
    const int group = chunk + lane();
    if (group >= groups_.count) return 0;
    return min(max(groups_.offs[std::int64_t(group) * groups_.stride], 0), extent_);
  }

  const GroupParams& groups_;
  int extent_, ahead_, next_group_ = 0, first_group_ = 0, last_ = 0;
};

// A tile of a group, and the rows, or the k, of the group. m and n count tiles, or clusters.
struct GroupTile {
  std::int32_t group, m, n, begin, end;
};

// Finds tiles by their numbers, which must ascend, as a warp. Groups follow one another; the tiles
// of a group are visited as in tile/scheduler.cuh, so that those in flight share rows and columns.
// kAxis: what groups divide.
template <Axis kAxis>
class GroupWalk {
 public:
  // rows: of the result, in a tile or a cluster.
  __device__ GroupWalk(const GroupParams& groups, const Extent& extent, int rows)
      : groups_(groups), scan_(groups, kAxis == Axis::m ? extent.m : extent.k), rows_(rows) {}

  // Returns false, in all lanes, if there are fewer tiles.
  __device__ bool find(int tile, GroupTile& found) {
    while (tile >= before_ + total_) {
      before_ += total_;
      if (!scan_.next()) return false;
      const int length = scan_.end - scan_.begin;
      height_ = kAxis == Axis::m ? (length + rows_ - 1) / rows_ : length > 0 ? groups_.rows : 0;
      inclusive_ = height_ * groups_.columns;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(GroupScan::kWarp, inclusive_, step);
        if (GroupScan::lane() >= step) inclusive_ += other;
      }
      total_ = __shfl_sync(GroupScan::kWarp, inclusive_, 31);
    }
    const int owner = __ffs(__ballot_sync(GroupScan::kWarp, tile - before_ < inclusive_)) - 1;
    const auto of_owner = [&](int value) { return __shfl_sync(GroupScan::kWarp, value, owner); };
    const int height = of_owner(height_), end = of_owner(inclusive_);
    const int index = tile - before_ - end + height * groups_.columns;
    const int strip = index / (groups_.raster * groups_.columns), first = strip * groups_.raster;
    const int in_strip = min(groups_.raster, height - first);
    const int rest = index - first * groups_.columns, column = rest / in_strip;
    found = {scan_.first_group() + owner, first + rest - column * in_strip, column,
             of_owner(scan_.begin), of_owner(scan_.end)};
    return true;
  }

 private:
  const GroupParams& groups_;
  GroupScan scan_;
  const int rows_;
  int before_ = 0, total_ = 0;      // tiles before the chunk, and of the chunk
  int height_ = 0, inclusive_ = 0;  // rows of this lane's group, and tiles up to its end
};

// Writes zeros to a row of the result, or of z, as a warp. vectors: it begins at a multiple of 16
// bytes, and its elements are adjacent.
template <class T>
__device__ inline void clear_row(T* row, int columns, std::int64_t stride, bool vectors) {
  constexpr int kElements = 16 / sizeof(T);
  const int lane = threadIdx.x % 32, first = vectors ? columns / kElements * kElements : 0;
  for (int col = lane * kElements; col < first; col += 32 * kElements)
    *reinterpret_cast<uint4*>(row + col) = {};
  for (int col = first + lane; col < columns; col += 32) row[col * stride] = 0;
}

// Writes zeros to what no tile stores: rows of no group, or the results of empty groups of k. Warp
// `warp` of `warps` in the grid calls it.
template <Axis kAxis, class Params>
__device__ inline void clear_groups(const Params& params, int warp, int warps) {
  const GroupParams& groups = params.groups;
  const Epilogue& epilogue = params.epilogue;
  const auto clear_as = [&]<class T>(T, std::int64_t matrix, std::int64_t first) {
    for (std::int64_t row = first + warp; row < params.extent.m; row += warps) {
      clear_row(static_cast<T*>(epilogue.out) + matrix * epilogue.out_stride_batch +
                    row * epilogue.out_stride_row,
                params.extent.n, epilogue.out_stride_col, epilogue.out_row_vectors);
      if (epilogue.z != nullptr)
        clear_row(
            static_cast<T*>(epilogue.z) + matrix * epilogue.z_stride_batch + row * epilogue.z_pitch,
            params.extent.n, 1, true);
    }
  };
  const auto clear = [&](int matrix, int first) {
    switch (addressable_bits(epilogue.out_dtype)) {
      case 8: return clear_as(std::uint8_t(), matrix, first);
      case 16: return clear_as(std::uint16_t(), matrix, first);
      case 32: return clear_as(std::uint32_t(), matrix, first);
      default: return clear_as(std::uint64_t(), matrix, first);
    }
  };
  if (!groups.clears) return;
  if constexpr (kAxis == Axis::m) {
    clear(0, max(groups.offs[std::int64_t(groups.count - 1) * groups.stride], 0));
  } else {
    for (GroupScan scan(groups, params.extent.k); scan.next();) {
      unsigned empty = __ballot_sync(GroupScan::kWarp, scan.is_group() && scan.begin == scan.end);
      for (; empty != 0; empty &= empty - 1) clear(scan.first_group() + __ffs(empty) - 1, 0);
    }
  }
}

// The tile of a CTA whose grid has at least one for each tile, and the extents of its group.
template <GemmConfig kConfig>
struct TileOfGroup {
  int row, col, group, k_begin;
  Extent extent;

  // All threads call it. The CTAs also write the zeros of what no tile stores. Returns false if the
  // CTA has no tile. `memory`: shared memory, which is free again after the return.
  __device__ bool find(const CpAsyncParams& params, char* memory) {
    auto* shared = reinterpret_cast<GroupTile*>(memory);
    constexpr int kWarps = kConfig.threads() / 32;
    if (threadIdx.x < 32) {
      GroupTile found{-1};
      GroupWalk<kConfig.grouped>(params.groups, params.extent, kConfig.tile_m())
          .find(blockIdx.x, found);
      if (threadIdx.x == 0) *shared = found;
    }
    clear_groups<kConfig.grouped>(params, blockIdx.x * kWarps + threadIdx.x / 32,
                                  gridDim.x * kWarps);
    __syncthreads();
    const GroupTile found = *shared;
    __syncthreads();
    constexpr bool kRows = kConfig.grouped == Axis::m;
    group = found.group;
    row = (kRows ? found.begin : 0) + found.m * kConfig.tile_m();
    col = found.n * kConfig.tile_n();
    k_begin = kRows ? 0 : found.begin;
    extent = params.extent;
    if (kRows)
      extent.m = found.end;
    else
      extent.k = found.end - found.begin;
    return group >= 0;
  }
};

// An operand whose k begins at k_begin. stride: between two k.
template <GemmConfig kConfig>
__device__ inline TensorRef from_k(TensorRef operand, std::int64_t stride, int k_begin) {
  if constexpr (kConfig.grouped == Axis::k)
    operand.data =
        static_cast<const char*>(operand.data) + k_begin * stride * (bits(kConfig.input) / 8);
  return operand;
}

}  // namespace tcgemm::tile
