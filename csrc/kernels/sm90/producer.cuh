// The TMA producer: it loads the operands of one k-block into a stage.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "catalog.h"
#include "core/packed_weight.h"
#include "core/params.h"
#include "kernels/sm90/shared_storage.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/uniform.cuh"
#include "tile/pipeline.cuh"

namespace tcgemm::sm90 {

// The codes and scales of the rows of a tile of a packed weight, of one block of k after the other.
template <GemmConfig kConfig>
class PackedRows {
 public:
  static_assert(kConfig.tile_m() == PackedLayout::kRows &&
                kConfig.tile_k() == PackedLayout::kDepth);
  static constexpr int kCodeBytes = kConfig.packed_code_bytes(PackedLayout::kRows);

  // The next block is k_block. The last CTAs of a cluster may have no row inside; they load the
  // last rows.
  __device__ void seek(const PackedParams& packed, int row, int k_block) {
    const std::int64_t rows = min(row / PackedLayout::kRows, packed.blocks_n - 1);
    const int group = packed.first_group(k_block);
    const int group_bytes = packed.vectors * PackedLayout::kRows * 4;
    codes_ = packed.codes + (rows * packed.blocks_k + k_block) * kCodeBytes;
    scales_ =
        reinterpret_cast<const char*>(packed.scales) + (rows * packed.groups + group) * group_bytes;
    scale_bytes_ = packed.groups_in_block * group_bytes;
    blocks_in_group_ = packed.blocks_in_group.value;
    blocks_left_ = packed.groups_in_block == 1 ? (group + 1) * blocks_in_group_ - k_block : 1;
  }

  // The bytes of the scales of a block.
  __device__ int scale_bytes() const { return scale_bytes_; }

  // The codes of a block are contiguous, and so are the scales of its groups.
  __device__ void load(std::uint32_t codes, std::uint32_t scales, std::uint32_t full) {
    ptx::bulk_load(codes, codes_, full, kCodeBytes);
    ptx::bulk_load(scales, scales_, full, scale_bytes_);
    codes_ += kCodeBytes;
    if (--blocks_left_ == 0) {
      scales_ += scale_bytes_;
      blocks_left_ = blocks_in_group_;
    }
  }

 private:
  const char *codes_, *scales_;
  int scale_bytes_, blocks_in_group_, blocks_left_;  // blocks that have the group of the next one
};

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
// In a cluster each CTA loads a slice of b, and multicasts it to the CTAs of the same columns: as
// many rows of a K-major tile, or as much k of an MN-major one. kSharesA: and a slice of a, to the
// CTAs of the same rows. So the bytes that arrive in a CTA are those of whole tiles, whatever it
// loads itself.
//
// Rows of a tile that are outside of the matrix are not loaded, but for the last few of a box. The
// stage then has old data there, and nothing is stored of their products. The last CTAs of a
// cluster may have no row, or no column, inside; what they load of the other operand is for others.
//
// A stage with a packed weight (core/packed_weight.h) has its codes, then b, then its scales.
template <GemmConfig kConfig, bool kSharesA = false>
struct TmaProducer {
  static_assert(!kSharesA || (kConfig.shares_a() && kConfig.terms() == 1));
  static constexpr int kRowBytes = kConfig.row_bytes();
  static constexpr int kTermBytesA = kConfig.tile_m() * kConfig.row_bytes_a();
  static constexpr int kTermBytesB = kConfig.loaded_n() * kRowBytes;
  static constexpr int kBytesA = kConfig.terms() * kTermBytesA;
  // The place of the metadata of a 2:4 operand, or of the scales of a packed weight.
  static constexpr int kMetadataOffset = kBytesA + kConfig.terms() * kTermBytesB;
  static constexpr int kBoxMn = kConfig.box_mn(), kBoxBytes = kConfig.tile_k() * 128;  // MN-major
  static_assert(kBytesA % 1024 == 0 && kConfig.stage_bytes() % 1024 == 0,
                "swizzled tiles begin at multiples of 1024 bytes");

  // The loads of the tile at (row, col) of matrix `matrix` of the operands.
  __device__ TmaProducer(const TmaParams& params, Cluster cluster, int row, int col, int matrix)
      : params_(params),
        cluster_(cluster),
        row_(row),
        col_(col),
        batch_a_(params.a_batched ? matrix : 0),
        batch_b_(params.b_batched ? matrix : 0) {
    const bool edge_a = kHasEdgeA && row + kConfig.tile_m() > params.extent.m;
    const bool edge_b = kHasEdgeB && col + kConfig.tile_n() > params.extent.n;
    const int edge_rows_a = row < params.extent.m ? params.edge_rows_a : 0;
    const int edge_rows_b = !kSharesA || col < params.extent.n ? params.edge_rows_b : 0;
    map_a_ = ptx::in_register(edge_a && row != 0 ? &params.edge_a : &params.a);
    map_b_ = ptx::in_register(edge_b && col != 0 ? &params.edge_b : &params.b);
    rows_a_ = edge_a ? edge_rows_a : kConfig.tile_m();
    rows_b_ = edge_b ? edge_rows_b : kConfig.loaded_n();
  }

  // The next block that is loaded is k_block. Precedes the first load. k: of block 0; it is not 0
  // where groups divide k.
  __device__ void seek(int k_block, int k = 0) {
    if constexpr (kConfig.grouped == Axis::k) k_ = k;
    if constexpr (kConfig.has_packed_weight()) packed_.seek(params_.packed, row_, k_block);
  }

  using Group = tile::StageGroups<kConfig.group_stages()>;

  // Loads both operands of the k-blocks of a group. Its first stage is `stage`.
  __device__ void load(std::uint32_t stage, std::uint32_t full, const Group& group) {
    ptx::mbarrier_arrive_expect(full, group.size * bytes());
    for_each_k_block(stage, group, [&](std::uint32_t to, int k_block) {
      load_a(to, full, k_block);
      load_b(to + kBytesA, full, k_block);
    });
  }

  // Loads the constant operand, and announces the bytes of both.
  __device__ void load_constant(std::uint32_t stage, std::uint32_t full, const Group& group) {
    ptx::mbarrier_arrive_expect(full, group.size * bytes());
    for_each_k_block(stage, group, [&](std::uint32_t to, int k_block) {
      if (params_.constant == ConstantOperand::a)
        load_a(to, full, k_block);
      else
        load_b(to + kBytesA, full, k_block);
    });
  }
  // Loads the other operand.
  __device__ void load_other(std::uint32_t stage, std::uint32_t full, const Group& group) {
    for_each_k_block(stage, group, [&](std::uint32_t to, int k_block) {
      if (params_.constant == ConstantOperand::a)
        load_b(to + kBytesA, full, k_block);
      else
        load_a(to, full, k_block);
    });
  }

 private:
  static constexpr bool kHasEdgeA = kConfig.edge_rows_a(1) != kConfig.tile_m();
  static constexpr bool kHasEdgeB = kConfig.edge_rows_b(1) != kConfig.loaded_n();

  // Calls load(stage, k-block) for each k-block of a group.
  template <class Load>
  __device__ static void for_each_k_block(std::uint32_t stage, const Group& group,
                                          const Load& load) {
#pragma unroll
    for (int i = 0; i < kConfig.group_stages(); ++i)
      if (i == 0 || i < group.size) load(stage + i * kConfig.stage_bytes(), group.k_block + i);
  }

  // Of a stage.
  __device__ int bytes() const {
    if constexpr (kConfig.has_packed_weight())
      return kBytesA + rows_b_ * kRowBytes + packed_.scale_bytes();
    if constexpr (kHasEdgeA || kHasEdgeB)
      return kConfig.terms() * (rows_a_ * kConfig.row_bytes_a() + rows_b_ * kRowBytes) +
             kConfig.metadata_bytes();
    return kConfig.loaded_bytes();
  }

  __device__ int k_of(int k_block) const {
    return k_block * kConfig.box_k() + (kConfig.grouped == Axis::k ? k_ : 0);
  }

  __device__ void load_a(std::uint32_t stage, std::uint32_t full, int k_block) {
    if constexpr (kConfig.has_packed_weight())
      return packed_.load(stage, stage + kMetadataOffset, full);
    const int k = k_of(k_block);
    int batch = batch_a_;
#pragma unroll
    for (int term = 0; term < kConfig.terms(); ++term) {
      load_term_a(stage + term * kTermBytesA, full, k, batch);
      if constexpr (kConfig.terms() > 1) batch += params_.split.copies_a;
    }
    if constexpr (kConfig.is_sparse()) load_metadata(stage + kMetadataOffset, full, k_block);
  }

  __device__ void load_b(std::uint32_t to, std::uint32_t full, int k_block) const {
    const int k = k_of(k_block);
    int batch = batch_b_;
#pragma unroll
    for (int term = 0; term < kConfig.terms(); ++term) {
      load_term_b(to + term * kTermBytesB, full, k, batch);
      if constexpr (kConfig.terms() > 1) batch += params_.split.copies_b;
    }
  }

  __device__ void load_term_a(std::uint32_t shared, std::uint32_t full, int k, int batch) const {
    if constexpr (kConfig.is_sparse()) {
      ptx::tma_load_interleaved(shared, map_a_, full, k / 2, row_ / 16);
    } else if constexpr (major_a(kConfig.layout) == Major::K) {
      const int first = cluster_.rank_n * part_of(rows_a_, cluster_.size_n);
      if (rows_a_ != 0) load_box_a(shared + first * kRowBytes, full, k, row_ + first, batch);
    } else {
      const int first = cluster_.rank_n * part_of(kConfig.tile_k(), cluster_.size_n);
#pragma unroll
      for (int i = 0; i < kConfig.tile_m() / kBoxMn; ++i)
        if (i * kBoxMn < rows_a_)
          load_box_a(shared + i * kBoxBytes + first * 128, full, row_ + i * kBoxMn, k + first,
                     batch);
    }
  }

  // The metadata of a tile is contiguous, and padded past M: one bulk copy loads it.
  __device__ void load_metadata(std::uint32_t shared, std::uint32_t full, int k_block) const {
    constexpr int kTileBytes = kConfig.metadata_bytes() / (kConfig.tile_m() / MetadataTiles::kRows);
    const std::int64_t index =
        std::int64_t(k_block) * params_.sparse.blocks_m + row_ / MetadataTiles::kRows;
    ptx::bulk_load(shared, reinterpret_cast<const char*>(params_.sparse.tiles) + index * kTileBytes,
                   full, kConfig.metadata_bytes());
  }

  __device__ void load_term_b(std::uint32_t shared, std::uint32_t full, int k, int batch) const {
    if constexpr (major_b(kConfig.layout) == Major::K) {
      const int first = cluster_.rank_m * part_of(rows_b_, cluster_.size_m);
      if (kSharesA && rows_b_ == 0) return;
      load_box_b(shared + first * kRowBytes, full, k, col_ + first, batch);
      if constexpr (kConfig.n > 256) {
        constexpr int kHalf = kConfig.box_rows_b(1);
        if (cluster_.size_m == 1)
          load_box_b(shared + kHalf * kRowBytes, full, k, col_ + kHalf, batch);
      }
    } else {
      const int first = cluster_.rank_m * part_of(kConfig.tile_k(), cluster_.size_m);
#pragma unroll
      for (int i = 0; i < kConfig.loaded_n() / kBoxMn; ++i)
        if (i * kBoxMn < rows_b_)
          load_box_b(shared + i * kBoxBytes + first * 128, full, col_ + i * kBoxMn, k + first,
                     batch);
    }
  }

  __device__ void load_box_a(std::uint32_t shared, std::uint32_t full, int inner, int outer,
                             int batch) const {
    if constexpr (kSharesA)
      ptx::tma_load_multicast(shared, map_a_, full, inner, outer, batch, cluster_.mask_a());
    else
      ptx::tma_load(shared, map_a_, full, inner, outer, batch);
  }
  __device__ void load_box_b(std::uint32_t shared, std::uint32_t full, int inner, int outer,
                             int batch) const {
    if (cluster_.size_m == 1)
      ptx::tma_load(shared, map_b_, full, inner, outer, batch);
    else
      ptx::tma_load_multicast(shared, map_b_, full, inner, outer, batch, cluster_.mask_b());
  }

  const TmaParams& params_;
  const Cluster cluster_;
  const int row_, col_, batch_a_, batch_b_;
  int k_ = 0;
  const TensorMap *map_a_, *map_b_;
  int rows_a_, rows_b_;  // of the tile that are loaded, by all CTAs that share it
  [[no_unique_address]] std::conditional_t<kConfig.has_packed_weight(), PackedRows<kConfig>,
                                           std::monostate> packed_;
};

}  // namespace tcgemm::sm90
