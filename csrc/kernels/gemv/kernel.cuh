// The GEMV kernels of sm_90a, for products of few rows: operands by cp.async, products by mma.sync.
// The bytes of b bound the time of such a product; each is read once.
#pragma once

#include <type_traits>

#include "catalog.h"
#include "core/params.h"
#include "ptx/cluster.cuh"
#include "ptx/shared.cuh"
#include "tile/epilogue.cuh"
#include "tile/fp64_epilogue.cuh"
#include "tile/scheduler.cuh"
#include "tile/store.cuh"
#include "tile/store_element.cuh"

namespace tcgemm::gemv {

// A CTA, or a cluster of two, has one tile. The warps divide k: warp i of all warps of the cluster
// multiplies blocks i, i + warps, i + 2 * warps, .. of 128 bytes of k. Each warp has stages of its
// own (mainloop.cuh), and no barrier but the barriers of the sums:
//
//   shared memory:  stages of warp 0 | of warp 1 | ..   sums of the cluster
//   afterwards:     sums of each warp | staging buffers
//
// The sums of the warps are added in ascending order, and then the sums of the CTAs. A CTA of a
// cluster stores its share of the columns.
template <GemmConfig kConfig, EpiloguePath kPath, template <GemmConfig> class MainloopOf>
struct Gemv {
  using Mainloop = MainloopOf<kConfig>;
  using Sum = typename Mainloop::Sum;
  using Sums = typename Mainloop::Sums;
  static constexpr int kWarps = kConfig.warpgroups * 4, kCluster = kConfig.gemv_cluster();
  static constexpr int kRows = kConfig.tile_m(), kColumns = kConfig.tile_n();
  // The epilogue computes in this type. Sums of f32 operands are rounded to it once.
  using Value = std::conditional_t<kConfig.input == DType::f32, float, Sum>;

  // The sums of a warp: kRows rows with this pitch, in elements.
  static constexpr int kPitch = kColumns + 4;
  static constexpr int kWarpSums = kRows * kPitch;
  static constexpr int kSumsBytes = kWarps * kWarpSums * sizeof(Sum);
  static constexpr int kStagingOffset = (kSumsBytes + 1023) / 1024 * 1024;
  // The columns that a CTA stores. Most epilogues store them in fragments of 16 rows and 32
  // columns, each by one warp.
  static constexpr int kStored = kColumns / kCluster, kStoredPitch = kConfig.gemv_pitch();
  static constexpr int kFragmentColumns = 32;
  static constexpr int kFragmentsM = (kRows + 15) / 16;
  static constexpr int kFragmentsN = (kStored + kFragmentColumns - 1) / kFragmentColumns;
  static_assert(kFragmentsM * kFragmentsN <= kWarps);
  static_assert(kStagingOffset + kFragmentsM * kFragmentsN * kStagingBytes <=
                kConfig.stages * kConfig.stage_bytes());

  __device__ static void run(const CpAsyncParams& params, char* memory) {
    if constexpr (kCluster > 1) ptx::cluster_arrive();
    const int rank = kCluster > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
    const tile::TileCoord tile = tile::tile_at(params.tiling, blockIdx.x / kCluster);
    const int row = tile.m * kRows, col = tile.n * kColumns;
    Sums sums = {};
    Mainloop::multiply(params, ptx::shared_address(memory), row, col, tile.batch, rank, sums);
    __syncthreads();  // the sums overwrite the stages
    auto* const warp_sums = reinterpret_cast<Sum*>(memory);
    auto* const cluster_sums =
        reinterpret_cast<Sum*>(memory + kConfig.stages * kConfig.stage_bytes());
    put_warp_sums(sums, warp_sums);
    __syncthreads();
    if constexpr (kCluster > 1) ptx::cluster_wait();  // the other CTA has started
    const bool by_elements = tile::stores_elements(params.epilogue);
    add_warps(warp_sums, [&](int in_row, int in_col, Sum sum) {
      Sum* const to = cluster_sums + (rank * kRows + in_row) * kStoredPitch + in_col % kStored;
      if constexpr (kCluster > 1)
        ptx::store_remote(ptx::remote_address(ptx::shared_address(to), in_col / kStored), sum);
      else if (by_elements)
        store_element(params, row, col, in_row, in_col, tile.batch, static_cast<Value>(sum));
      else
        *to = sum;
    });
    if constexpr (kCluster > 1) {
      ptx::cluster_arrive();
      ptx::cluster_wait();
      if (by_elements)
        return store_elements(params, cluster_sums, row, col + rank * kStored, tile.batch);
    } else {
      if (by_elements) return;
      __syncthreads();
    }
    store_fragments(params, memory + kStagingOffset, cluster_sums, row, col + rank * kStored,
                    tile.batch);
  }

 private:
  // The rows of the instruction are columns of the result. tile/fragment.cuh has its registers.
  __device__ static void put_warp_sums(const Sums& sums, Sum* warp_sums) {
    const int lane = threadIdx.x % 32;
    Sum* const to = warp_sums + threadIdx.x / 32 * kWarpSums + lane % 4 * 2 * kPitch;
    const int columns[2] = {tile::row_of<Mainloop::kColumnOrder>(lane / 4),
                            tile::row_of<Mainloop::kColumnOrder>(lane / 4 + 8)};
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j)
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          to[(8 * i + r % 2) * kPitch + 16 * j + columns[r / 2]] = sums[j][i][r];
  }

  // Calls visit(row, column, sum of the warps) for the elements of the tile.
  template <class Visit>
  __device__ static void add_warps(const Sum* warp_sums, const Visit& visit) {
    for (int i = threadIdx.x; i < kRows * kColumns; i += kConfig.threads()) {
      const int row = i / kColumns, col = i % kColumns;
      const Sum* const from = warp_sums + row * kPitch + col;
      Sum sum = from[0];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) sum += from[warp * kWarpSums];
      visit(row, col, sum);
    }
  }

  // The sum of the CTAs at (row, col) of the columns that this CTA stores.
  __device__ static Value cluster_sum(const Sum* cluster_sums, int row, int col) {
    const Sum* const from = cluster_sums + row * kStoredPitch + col;
    Sum sum = from[0];
#pragma unroll
    for (int other = 1; other < kCluster; ++other) sum += from[other * kRows * kStoredPitch];
    return static_cast<Value>(sum);
  }

  __device__ static void store_elements(const CpAsyncParams& params, const Sum* cluster_sums,
                                        int row, int col, int batch) {
    for (int i = threadIdx.x; i < kRows * kStored; i += kConfig.threads())
      store_element(params, row, col, i / kStored, i % kStored, batch,
                    cluster_sum(cluster_sums, i / kStored, i % kStored));
  }

  __device__ static void store_element(const CpAsyncParams& params, int row, int col, int in_row,
                                       int in_col, int batch, Value sum) {
    if (in_row < params.extent.m - row && in_col < params.extent.n - col)
      tile::store_element(params.epilogue, row + in_row, col + in_col, batch, sum);
  }

  __device__ static void store_fragments(const CpAsyncParams& params, char* staging,
                                         const Sum* cluster_sums, int row, int col, int batch) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= kFragmentsM * kFragmentsN) return;
    const int in_row = warp / kFragmentsN * 16, in_col = warp % kFragmentsN * kFragmentColumns;
    Value values[1][kFragmentColumns / 2] = {};
#pragma unroll
    for (int i = 0; i < kFragmentColumns / 2; ++i) {
      const int at_row = in_row + lane / 4 + i / 2 % 2 * 8;
      const int at_col = in_col + i / 4 * 8 + lane % 4 * 2 + i % 2;
      if (at_row < kRows && at_col < kStored)
        values[0][i] = cluster_sum(cluster_sums, at_row, at_col);
    }
    // Another CTA stores what is beside the columns of this one.
    Extent extent = params.extent;
    extent.m = min(extent.m, row + kRows);
    extent.n = min(extent.n, col + kStored);
    row += in_row;
    col += in_col;
    if constexpr (kConfig.input == DType::f64)
      tile::store_f64(params.epilogue, extent, row, col, batch, values);
    else
      tile::store_fragments<kFragmentColumns, kFragmentColumns, Value>(
          params.epilogue, extent, staging + warp * kStagingBytes, row, col, batch, values);
  }
};

}  // namespace tcgemm::gemv
