// The TMA producer: it loads the operands of one k-block into a stage.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/shared_storage.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"

namespace tcgemm::sm90 {

// A stage holds 128 bytes of k (tile_k elements, the widest swizzle; 64 bytes for three split-FP32
// terms) of every row:
//
//   K-major : 1 box, a row is one m (or n)                     rows = tile_m (tile_n)
//   MN-major: boxes of kBoxMn of m (n), a row is one k         rows = tile_k
//             16 bits: WGMMA reads such boxes; 8 bits and tf32: mainloop/rs.cuh transposes them (a)
//
//   stage:  a: tile_m rows of 128 bytes | b: tile_n rows of 128 bytes      (see ptx/wgmma.cuh)
//
// A stage of a split-FP32 kernel holds all terms of a, then all terms of b. A stage of a 2:4 kernel
// (core/sparse.h) holds rows of 64 bytes with the values of a, then b, then the metadata. Within 16
// rows the values have the order of tile::RowOrder::interleaved.
//
// In a cluster the CTAs have adjacent rows of a and the same columns of b. Each CTA multicasts its
// slice of b to all: as many rows of a K-major tile, or as much k of an MN-major one.
//
// Rows of a tile that are outside of the matrix are not loaded, but for the last few of a box. The
// stage then has old data there, and nothing is stored of their products.
template <GemmConfig kConfig>
struct TmaProducer {
  static constexpr int kRowBytes = kConfig.row_bytes();
  static constexpr int kTermBytesA = kConfig.tile_m() * kConfig.row_bytes_a();
  static constexpr int kTermBytesB = kConfig.loaded_n() * kRowBytes;
  static constexpr int kBytesA = kConfig.terms * kTermBytesA;
  static constexpr int kMetadataOffset = kBytesA + kConfig.terms * kTermBytesB;
  static constexpr int kBoxMn = kConfig.box_mn(), kBoxBytes = kConfig.tile_k() * 128;  // MN-major
  static_assert(kBytesA % 1024 == 0 && kConfig.stage_bytes() % 1024 == 0,
                "swizzled tiles begin at multiples of 1024 bytes");

  // The rows of a and the columns of b that are loaded of a tile, and the maps of K-major operands.
  struct Loaded {
    const TensorMap *map_a, *map_b;
    int rows_a, rows_b;  // rows_b counts for the whole cluster
  };
  __device__ static Loaded loaded(const TmaParams& params, int row, int col) {
    const bool edge_a = kHasEdgeA && row + kConfig.tile_m() > params.extent.m;
    const bool edge_b = kHasEdgeB && col + kConfig.tile_n() > params.extent.n;
    // The last CTAs of a cluster may have no row inside.
    const int rows_a = row < params.extent.m ? params.edge_rows_a : 0;
    const int rows_b = !kConfig.shares_a || col < params.extent.n ? params.edge_rows_b : 0;
    return {edge_a ? &params.edge_a : &params.a, edge_b ? &params.edge_b : &params.b,
            edge_a ? rows_a : kConfig.tile_m(), edge_b ? rows_b : kConfig.loaded_n()};
  }

  // Loads both operands of k-block `k_block`, for rows from `row` and columns from `col` on.
  __device__ static void load(const TmaParams& params, const Loaded& loaded, std::uint32_t stage,
                              std::uint32_t full, int row, int col, int batch, int k_block,
                              Cluster cluster) {
    const int k = k_block * kConfig.tile_k();
    int batch_a = params.a_batched ? batch : 0;
    int batch_b = params.b_batched ? batch : 0;
    ptx::mbarrier_arrive_expect(full, bytes(loaded));
#pragma unroll
    for (int term = 0; term < kConfig.terms; ++term, stage += kTermBytesA) {
      load_a(loaded, stage, full, row, k, batch_a, cluster);
      if constexpr (kConfig.terms > 1) batch_a += params.split.copies_a;
    }
#pragma unroll
    for (int term = 0; term < kConfig.terms; ++term, stage += kTermBytesB) {
      load_b(loaded, stage, full, col, k, batch_b, cluster);
      if constexpr (kConfig.terms > 1) batch_b += params.split.copies_b;
    }
    if constexpr (kConfig.sparse) load_metadata(params, stage, full, row, k_block);
  }

 private:
  static constexpr bool kHasEdgeA = kConfig.edge_rows_a(1) != kConfig.tile_m();
  static constexpr bool kHasEdgeB = kConfig.edge_rows_b(1) != kConfig.loaded_n();

  __device__ static int bytes(const Loaded& loaded) {
    if constexpr (kHasEdgeA || kHasEdgeB)
      return kConfig.terms * (loaded.rows_a * kConfig.row_bytes_a() + loaded.rows_b * kRowBytes) +
             kConfig.metadata_bytes();
    return kConfig.loaded_bytes();
  }

  __device__ static void load_a(const Loaded& loaded, std::uint32_t shared, std::uint32_t full,
                                int row, int k, int batch, Cluster cluster) {
    if constexpr (kConfig.shares_a) {
      static_assert(major_a(kConfig.layout) == Major::K);
      const int rows = cluster.slice(loaded.rows_a), first = cluster.rank * rows;
      load_box(loaded.map_a, shared + first * kRowBytes, full, k, row + first, batch, cluster);
    } else if constexpr (kConfig.sparse) {
      ptx::tma_load_interleaved(shared, loaded.map_a, full, k / 2, row / 16);
    } else if constexpr (major_a(kConfig.layout) == Major::K) {
      if (loaded.rows_a != 0) ptx::tma_load(shared, loaded.map_a, full, k, row, batch);
    } else {
#pragma unroll
      for (int i = 0; i < kConfig.tile_m() / kBoxMn; ++i)
        if (i * kBoxMn < loaded.rows_a)
          ptx::tma_load(shared + i * kBoxBytes, loaded.map_a, full, row + i * kBoxMn, k, batch);
    }
  }

  // The metadata of a tile is contiguous, and padded past M: one bulk copy loads it.
  __device__ static void load_metadata(const TmaParams& params, std::uint32_t shared,
                                       std::uint32_t full, int row, int k_block) {
    constexpr int kTileBytes = kConfig.metadata_bytes() / (kConfig.tile_m() / MetadataTiles::kRows);
    const std::int64_t index =
        std::int64_t(k_block) * params.sparse.blocks_m + row / MetadataTiles::kRows;
    ptx::bulk_load(shared, reinterpret_cast<const char*>(params.sparse.tiles) + index * kTileBytes,
                   full, kConfig.metadata_bytes());
  }

  __device__ static void load_b(const Loaded& loaded, std::uint32_t shared, std::uint32_t full,
                                int col, int k, int batch, Cluster cluster) {
    if constexpr (kConfig.shares_a) {
      static_assert(major_b(kConfig.layout) == Major::K);
      if (loaded.rows_b != 0) ptx::tma_load(shared, loaded.map_b, full, k, col, batch);
    } else if constexpr (major_b(kConfig.layout) == Major::K) {
      const int rows = cluster.slice(loaded.rows_b), first = cluster.rank * rows;
      load_box(loaded.map_b, shared + first * kRowBytes, full, k, col + first, batch, cluster);
      if constexpr (kConfig.n > 256) {
        constexpr int kHalf = kConfig.box_rows_b(1);
        if (cluster.size == 1)
          load_box(loaded.map_b, shared + kHalf * kRowBytes, full, k, col + kHalf, batch, cluster);
      }
    } else {
      const int rows = cluster.slice(kConfig.tile_k()), first = cluster.rank * rows;
#pragma unroll
      for (int i = 0; i < kConfig.loaded_n() / kBoxMn; ++i)
        if (i * kBoxMn < loaded.rows_b)
          load_box(loaded.map_b, shared + i * kBoxBytes + first * 128, full, col + i * kBoxMn,
                   k + first, batch, cluster);
    }
  }

  __device__ static void load_box(const TensorMap* map, std::uint32_t shared, std::uint32_t full,
                                  int inner, int outer, int batch, Cluster cluster) {
    if (cluster.size == 1)
      ptx::tma_load(shared, map, full, inner, outer, batch);
    else
      ptx::tma_load_multicast(shared, map, full, inner, outer, batch, cluster.mask());
  }
};

}  // namespace tcgemm::sm90
