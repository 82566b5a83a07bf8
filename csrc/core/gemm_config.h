// One compiled kernel: its mainloop, types, layout and tile, and the sizes that follow from them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/arch.h"
#include "core/cluster_shape.h"
#include "core/dtype.h"
#include "core/epilogue_path.h"
#include "core/layout.h"
#include "core/mainloop.h"
#include "core/operands.h"
#include "core/packed_weight.h"
#include "core/sparse.h"
#include "core/split_fp32.h"

namespace tcgemm {

// Operands lie in shared memory in blocks of 64 rows of 128 bytes, the widest swizzle: 64 elements
// of 16 bits.
inline constexpr int kBlock = 64;

// Padding of a shared-memory row in FP64-accumulating kernels, against bank conflicts. Bytes.
inline constexpr int kPadBytes = 32;

// The epilogue staging buffer of a warp: 16 rows of 128 bytes, one TMA box.
inline constexpr int kBoxRows = 16;
inline constexpr int kBoxColumns = 64;
inline constexpr int kStagingBytes = kBoxRows * 128;
// The shared memory of a CTA on sm_90.
inline constexpr int kHopperSharedBytes = 232448;
inline constexpr int kMostClusterSlices = kMostClusterCtas;
// Column-major output is stored by TMA in 64 x 32 boxes; two fill a warpgroup's staging buffers.
inline constexpr int kStoreColumns = 2 * kStagingBytes / 128;

// The rows of the widest tile of a GEMV kernel. For more of them it is not tried.
inline constexpr int kMostGemvRows = 32;

// The columns and the k of the widest thin tile.
inline constexpr int kMostThinColumns = 64;
inline constexpr int kMostThinDepth = 64;

// A tile is tile_m x tile_n of the result and tile_k of depth in one stage:
//
//   sm90a  warpgroups * m64_blocks * 64 rows: each warpgroup owns m64_blocks wgmma rows, n wide;
//          pingpong: m64_blocks * 64 rows, each warpgroup owns every second tile of its CTA
//          split_n: m64_blocks * 64 rows, n / warpgroups columns for each warpgroup
//          gemv: gemv_rows rows
//   sm80   the same block of threads as warps of mma.sync: see kernels/sm80/kernel.cuh
struct TileShape {
  int warpgroups = 2;  // consumers; sm90a adds one producer warpgroup
  int m64_blocks = 1;  // blocks of 64 rows per warpgroup
  int n = 0;           // columns of the tile
  int stages = 0;      // pipeline stages in shared memory
  // The warpgroups compute different tiles: one multiplies while the other is in its epilogue.
  bool pingpong = false;
  // The warpgroups own the same rows and split the columns: tiles of m64_blocks * 64 rows.
  bool split_n = false;
  // A GEMV kernel has tiles of so few rows, 8, 16 or 32: kernels/gemv. Its warps divide k.
  int gemv_rows = 0;
  // There is a kernel with EpiloguePath::columns alone: other tiles serve row-major results better.
  bool columns_only = false;
  // The CTAs of a cluster of a GEMV kernel, which divide k as well, so that each reads less of a.
  int gemv_ctas = 1;
  // The kernel computes grouped products whose groups divide m, or k (Problem::grouped).
  Axis grouped = Axis::one;
};

// GemmConfig is a C++20 structural value and the template argument of its kernel.
struct GemmConfig : TileShape {
  Arch arch = Arch::sm90a;
  Mainloop mainloop = Mainloop::dense;
  DType input = DType::bf16;    // of a
  DType input_b = DType::bf16;  // of b: another one in mixed fp8 and int8 products
  DType accumulator = DType::f32;
  Layout layout = Layout::TN;
  // The bits of a packed weight, which the kernel decodes: operand b of a GEMV kernel, a of the
  // others. 0: no operand is a packed weight.
  int weight_bits = 0;

  constexpr bool is_grouped() const { return grouped != Axis::one; }
  constexpr bool has_packed_weight() const { return weight_bits != 0; }
  constexpr bool is_packed_mma() const { return mainloop == Mainloop::packed_mma; }
  constexpr bool is_sparse() const { return mainloop == Mainloop::sparse; }
  constexpr bool block_scaled() const { return mainloop == Mainloop::block_scaled; }
  // The tensor cores read A from registers.
  constexpr bool is_rs() const {
    return mainloop == Mainloop::rs || (has_packed_weight() && !is_gemv());
  }
  // The kernel makes TF32 terms of FP32 operands: a's in registers, b's in shared memory.
  constexpr bool is_tf32x2() const { return mainloop == Mainloop::tf32x2; }
  // 16-bit terms that an FP32 operand is split into.
  constexpr int terms() const {
    if (mainloop != Mainloop::split_fp32) return 1;
    return input == DType::f16 ? kF16Terms : kBf16Terms;
  }
  // The scales that a block of 64 k of a packed weight takes at most, of `rows` rows: the scales
  // of the smallest groups, 16 of 4 bits, or of 32 with points or offsets, or 32 of 8 bits.
  constexpr int packed_scale_bytes(int rows) const {
    return rows * 4 * (weight_bits == 4 ? 4 : weight_bits == 8 ? 2 : 0);
  }
  // The table of a packed weight for each pair of codes and each lane: tile/decode.cuh. Only table4
  // has it.
  constexpr int table_bytes() const { return weight_bits == 4 ? 256 * 32 * 4 : 0; }
  constexpr int packed_code_bytes(int rows) const {
    return rows * PackedLayout::kDepth * weight_bits / 8;
  }

  // Four consumer warpgroups beside a packed weight are two pairs, which divide the k-blocks of a
  // tile. So four warps of a scheduler hide each other's latencies.
  constexpr int k_groups() const {
    return has_packed_weight() && has_producer() && warpgroups == 4 ? 2 : 1;
  }
  // The consumer warpgroups that have rows of their own.
  constexpr int row_groups() const { return warpgroups / k_groups(); }

  constexpr bool is_gemv() const {
    return mainloop == Mainloop::gemv || mainloop == Mainloop::packed_gemv;
  }
  constexpr bool is_thin() const { return mainloop == Mainloop::thin; }
  // 0: no GEMV kernel.
  constexpr int gemv_cluster() const { return is_gemv() ? gemv_ctas : 0; }
  // The sums of the columns that a CTA stores, from each CTA of its cluster. A sum has at most 8
  // bytes, and a row is padded against bank conflicts.
  constexpr int gemv_pitch() const { return n / gemv_cluster() + 4; }
  constexpr int gemv_sums_bytes() const { return gemv_cluster() * gemv_rows * gemv_pitch() * 8; }

  // Promoted FP8 sums of a tile that leaves few registers.
  constexpr bool wide_fp8_promotes() const { return promotes() && bits(input) == 8 && n > 128; }
  // The consumer warpgroups multiply one after the other: kernels/sm90/order_barrier.cuh.
  constexpr bool orders_warpgroups() const {
    return pingpong || terms() > 1 || (block_scaled() && warpgroups == 2 && n % 128 == 0);
  }
  // The CTAs of a cluster may share a as well as b, and there may be eight of them. The other
  // mainloops share b alone, among up to four.
  constexpr bool shares_a() const {
    return arch == Arch::sm90a && (mainloop == Mainloop::dense || mainloop == Mainloop::promoted);
  }
  // A lane holds two adjacent rows of a column: tile::RowOrder::interleaved.
  constexpr bool interleaved_rows() const { return is_rs() || is_sparse() || is_tf32x2(); }
  // There is no kernel with EpiloguePath::rolled: it would have no registers for it, the tile is
  // no whole number of boxes, or the FP8 mainloop beside it becomes slower.
  constexpr bool unrolled_only() const {
    // One grouped kernel for results that are no vectors is enough.
    const bool has_other = is_grouped() && n > 128;
    return uses_tma() &&
           (pingpong || n > 256 || has_narrow_box() || wide_fp8_promotes() || has_other);
  }
  // The last columns of a tile fill no box. TMA does not store them.
  constexpr bool has_narrow_box() const { return n % kBoxColumns != 0 && !interleaved_rows(); }
  // There is a kernel with EpiloguePath::fused. Block-scaled kernels lack the registers for columns
  // that fill no box.
  constexpr bool fuses_activations() const {
    if (input == DType::b1) return false;  // its results are s32, without activations
    // Layers are TN. Gradients of weights have no terms.
    if (is_grouped() && (grouped == Axis::k || layout != Layout::TN)) return false;
    if (block_scaled() && n % kBoxColumns != 0) return false;
    return uses_tma() && (mainloop == Mainloop::dense || (promotes() && bits(input) == 8));
  }
  constexpr bool has_kernel(EpiloguePath path) const {
    if (columns_only && path != EpiloguePath::columns && path != EpiloguePath::slices) return false;
    switch (path) {
      case EpiloguePath::plain: return uses_tma() && !is_tf32x2();  // its results are f32
      case EpiloguePath::fused: return fuses_activations();
      case EpiloguePath::rolled: return !unrolled_only();
      case EpiloguePath::columns: return transposes_result();
      case EpiloguePath::slices: return sums_in_grid();
      case EpiloguePath::direct: break;
    }
    return false;
  }
  // There is a kernel with EpiloguePath::columns, which stores a column-major result by TMA: f32 of
  // tf32 operands, 16 or 8 bits of others, which stmatrix transposes. Such a result is that of a
  // product with A and B swapped, so TN is for a K-major b and TT for an MN-major one.
  constexpr bool transposes_result() const {
    return arch == Arch::sm90a && (mainloop == Mainloop::dense || mainloop == Mainloop::promoted) &&
           !pingpong && !is_grouped() && n <= 256 && n % 16 == 0 && bits(input) >= 8 &&
           input == input_b && bits(accumulator) == 32 &&
           (layout == Layout::TN || layout == Layout::TT);
  }
  // The results of its kernel with EpiloguePath::columns are f32.
  constexpr bool transposes_f32() const { return bits(input) == 32 && !interleaved_rows(); }
  // Columns of a column-major result in a buffer of 64 rows.
  constexpr int store_columns() const {
    return transposes_f32() ? kStoreColumns / 2 : kStoreColumns;
  }
  // The rows and columns of a box of a column-major result. A tile is a whole number of boxes.
  constexpr int store_box_rows() const { return transposes_f32() ? 32 : 64; }
  constexpr int store_box_columns() const {
    return n % kStoreColumns == 0 ? store_columns() : kStoreColumns / 2;
  }
  // Kernels with RowOrder::interleaved store column-major results of this type alone by TMA:
  // tile/tma_store_columns.cuh.
  constexpr DType column_store_dtype() const { return bits(input) == 16 ? input : DType::bf16; }
  constexpr bool tma_stores_columns() const {
    return interleaved_rows() && uses_tma() && !is_packed_mma() && !is_tf32x2() &&
           k_groups() == 1 && n % (2 * kStoreColumns) == 0;
  }
  // TMA loads the operands (TmaParams). The other kernels, FP64-accumulating ones among them, take
  // any strides and alignment (CpAsyncParams). They load with cp.async, but for thin ones.
  constexpr bool uses_tma() const { return has_producer() && mainloop != Mainloop::fp64; }
  // Another kernel can add the sums of slices of k: Slices in core/params.h. Sums of split FP32
  // must be whole before they are rescaled.
  constexpr bool divides_k() const {
    if (columns_only || is_grouped()) return false;  // sums are f32 in rows
    if (!uses_tma()) return has_producer();          // it accumulates in f64
    return terms() == 1 && !is_tf32x2() && (!is_sparse() || n <= 64);
  }
  // A cluster can add the sums of slices: kernels/sm90/cluster_sum.cuh. Tiles of more than 256
  // columns have no registers for it, and are for large results.
  constexpr bool sums_in_cluster() const {
    const bool added = uses_tma() && !columns_only && !is_grouped() &&
                       (divides_k() || (terms() == kF16Terms && n <= 128) || is_tf32x2());
    const bool has_registers = has_packed_weight() ? n <= 128 : !is_rs() && n <= 256;
    return added && has_registers && bits(accumulator) == 32 && !pingpong &&
           (m64_blocks == 1 || is_packed_mma()) && row_groups() <= 2;
  }
  // There is a kernel with EpiloguePath::slices. Other tiles are for more results than CTAs.
  constexpr bool sums_in_grid() const {
    const bool is_usual = n == 64 || n == 128 || n == 256 || (n == 32 && layout == Layout::TN) ||
                          (bits(input) == 16 && streams_k());
    return mainloop == Mainloop::dense && is_usual && !is_grouped() && warpgroups <= 2 &&
           !(warpgroups == 1 && n > 128) && !pingpong && m64_blocks == 1 && arch == Arch::sm90a &&
           input == input_b && input != DType::u8 && !is_fp8(input) && bits(input) >= 8 &&
           bits(accumulator) == 32;
  }
  // Stream-K divides the tiles of all its kernels with a packed weight, unless warpgroups divide
  // k: those have no registers for it. Without a packed weight, it divides those with
  // EpiloguePath::columns, for results of 65 to 256 rows or columns. The kernel with
  // EpiloguePath::slices stores the other results.
  constexpr bool streams_k() const {
    if (has_packed_weight())
      return arch == Arch::sm90a && mainloop == Mainloop::packed && k_groups() == 1;
    const bool is_wide = n == 128 || n == 160 || n == 192 || n == 256;
    return transposes_result() && mainloop == Mainloop::dense && is_wide && warpgroups <= 2 &&
           m64_blocks == 1 && !(warpgroups == 1 && n > 128) && bits(input) == 16;
  }
  constexpr bool streams_k_in(EpiloguePath path) const {
    return streams_k() && (has_packed_weight() || path == EpiloguePath::columns);
  }
  constexpr bool has_slices() const { return divides_k() || sums_in_cluster(); }
  // The sums of a slice of a tile.
  constexpr int slice_bytes() const { return tile_m() * tile_n() * 4; }
  // Can a cluster add so many slices? The stages of a CTA have what its warps receive, and what the
  // others send.
  constexpr bool adds_in_cluster(int slices) const {
    if (!sums_in_cluster() || slices < 2 || slices > kMostClusterSlices) return false;
    const int warps = 4 * row_groups(), own = (warps + slices - 1) / slices;
    const int held = own * (slices - 1) + warps - own;  // sums of a warp
    return held * (slice_bytes() / warps) <= stages * stage_bytes();
  }
  // The sums of a k-block are added, scaled or not, to a second set of accumulators.
  constexpr bool promotes() const {
    return mainloop == Mainloop::promoted || block_scaled() || terms() > 1 || is_tf32x2();
  }
  // FP8 sums are as accurate as sums of 16-bit operands. A GEMV kernel issues mma.sync, for which
  // ptxas widens FP8 to f16.
  constexpr bool has_accurate_fp8_sums() const { return promotes() || is_gemv(); }
  constexpr int tile_m() const {
    return is_gemv() ? gemv_rows : (pingpong || split_n ? 1 : row_groups()) * m64_blocks * 64;
  }
  // Consumer warpgroups that read a stage, or warps with mma.sync.
  constexpr int stage_readers() const {
    return is_packed_mma() ? 4 * warpgroups : pingpong ? 1 : row_groups();
  }
  constexpr int tile_n() const { return n; }
  // Adjacent stages that share one pair of mbarriers. The WGMMAs of a stage of a narrow tile take
  // less time than its barriers: docs/dev/kernels/frame.md.
  constexpr int group_stages() const {
    const bool is_narrow = warpgroups == 1 && n <= 80;
    return uses_tma() && mainloop == Mainloop::dense && is_narrow && stages % 2 == 0 &&
                   !is_grouped()
               ? 2
               : 1;
  }
  constexpr int stage_groups() const { return stages / group_stages(); }
  // A stage holds 128 bytes of k per row: the widest swizzle, and the widest TMA box. Three terms
  // leave space for 64.
  constexpr int row_bytes() const { return terms() == kBf16Terms ? 64 : 128; }
  // All of k in a thin kernel.
  constexpr int tile_k() const {
    return is_thin() ? kMostThinDepth : row_bytes() * 8 / bits(input);
  }
  // The same in elements, or in bytes if the type is sub-byte: TMA has no sub-byte types.
  constexpr int box_k() const { return is_subbyte(input) ? row_bytes() : tile_k(); }
  // A row of A. The values of a 2:4 operand take half, and have metadata. A packed weight has
  // codes.
  constexpr int row_bytes_a() const {
    if (has_packed_weight() && !is_gemv()) return packed_code_bytes(1);
    return is_sparse() ? row_bytes() / 2 : row_bytes();
  }
  constexpr int metadata_bytes() const {
    return is_sparse() ? int(MetadataTiles{tile_m(), tile_k(), bits(input)}.tile_bytes()) : 0;
  }
  // Elements of m or n in a box of an MN-major operand: 128 bytes.
  constexpr int box_mn() const { return 1024 / bits(input); }
  // Columns of b in a stage. An MN-major b is loaded in whole boxes.
  constexpr int loaded_n() const {
    const int box = uses_tma() && major_b(layout) == Major::MN ? box_mn() : 1;
    return (n + box - 1) / box * box;
  }
  // Rows of b in a box of a K-major b that `ctas` of a cluster share. A box has at most 256 rows.
  constexpr int box_rows_b(int ctas) const { return ctas == 1 && n > 256 ? n / 2 : n / ctas; }
  // The rows that TMA loads of the last tile along m, or along n, where that tile is partly outside
  // of the matrix: a row outside takes longer than one inside. A K-major operand is loaded in
  // multiples of 8 rows, an MN-major one in whole boxes. Split FP32 compares sums of rows outside
  // too, and needs their zeros.
  constexpr int edge_rows_a(std::int64_t m) const {
    return terms() > 1 || is_tf32x2() || is_sparse() || has_packed_weight() || grouped == Axis::m
               ? tile_m()
               : edge_rows(m, tile_m(), tile_m(), major_a(layout));
  }
  constexpr int edge_rows_b(std::int64_t n_extent) const {
    return terms() > 1 || n > 256 ? loaded_n()
                                  : edge_rows(n_extent, n, loaded_n(), major_b(layout));
  }
  // CTAs that ptxas leaves registers for. With a packed weight several hide the start and the end
  // of one of few rows, and the time that the others take to decode.
  constexpr int least_ctas() const {
    if (is_thin()) return input == DType::f32 ? (n > 32 ? 3 : 4) : (n > 32 ? 5 : 6);
    if (!has_packed_weight() || warpgroups > 2) return 1;
    if (is_gemv())
      return std::max(gemv_ctas > 1 ? 2 : 1, 2 / warpgroups * (4 - gemv_rows * n / 256));
    return arch == Arch::sm80 || is_packed_mma() ? 2 : 1;
  }
  constexpr bool has_producer() const { return arch == Arch::sm90a && !is_gemv() && !is_thin(); }
  constexpr int threads() const { return 128 * (warpgroups + (has_producer() ? 1 : 0)); }
  constexpr int pad() const { return accumulator == DType::f64 ? kPadBytes / bytes(input) : 0; }
  // The bytes that a stage is filled with. A stage starts at a multiple of 1024 bytes, as swizzles
  // require. A GEMV kernel has a stage of its own for each warp.
  constexpr int loaded_bytes() const {
    if (is_thin()) return tile_n() * tile_k() * (accumulator == DType::f64 ? 8 : bytes(input));
    if (is_gemv() && has_packed_weight())
      return warpgroups * 4 *
             (tile_m() * row_bytes() + packed_code_bytes(tile_n()) + packed_scale_bytes(tile_n()));
    if (is_gemv()) return warpgroups * 4 * (tile_m() + tile_n()) * row_bytes();
    const int padding = pad() * bytes(input);
    return terms() * (tile_m() * (row_bytes_a() + padding) + loaded_n() * (row_bytes() + padding)) +
           metadata_bytes() + (has_packed_weight() ? packed_scale_bytes(tile_m()) : 0);
  }
  constexpr int stage_bytes() const {
    return uses_tma() ? (loaded_bytes() + low_term_bytes() + 1023) / 1024 * 1024 : loaded_bytes();
  }
  // The low TF32 terms of b, after what is loaded. The high ones take the place of b.
  constexpr int low_term_bytes() const { return is_tf32x2() ? n * row_bytes() : 0; }
  // One set of staging buffers has one buffer for each warp. With two sets a warp fills a buffer
  // while TMA reads the other.
  constexpr int staging_set_bytes() const { return row_groups() * 4 * kStagingBytes; }
  constexpr int staging_sets() const {
    const int bytes = pipeline_bytes() + 2 * staging_set_bytes() + table_bytes();
    return uses_tma() && bytes <= kHopperSharedBytes && !is_packed_mma() && k_groups() == 1 ? 2 : 1;
  }
  constexpr int staging_bytes() const { return staging_sets() * staging_set_bytes(); }
  // A value for each column of a tile in f32, once for each consumer warpgroup; 0 where there is no
  // space for it. Epilogue::shared_vector says what it has.
  constexpr int vector_bytes() const {
    const int bytes = row_groups() * n * 4;
    const bool fits =
        operand_bytes() + staging_set_bytes() + table_bytes() + bytes <= kHopperSharedBytes;
    return uses_tma() && fits ? bytes : 0;
  }
  // The sums that one pair of warpgroups passes to the other.
  constexpr int exchange_bytes() const { return k_groups() > 1 ? slice_bytes() : 0; }
  // The scales of a tile's rows and columns for one k-block.
  constexpr int scale_bytes() const { return block_scaled() ? (tile_m() + tile_n()) * 4 : 0; }
  // A stage of the operands is released before all warps have read its scales, so there are two
  // more stages of scales: the warps of a warpgroup are at most one WGMMA group apart.
  constexpr int scale_stages() const { return block_scaled() ? stages + 2 : 0; }
  // Dynamic shared memory: the stages. sm90a adds the staging buffers (not for FP64 results), the
  // scales, and two barriers a group of stages. A GEMV kernel adds the sums of its cluster. sm80
  // stages its output in the pipeline stages, so that three of them fit on GPUs with 99 KB per CTA.
  constexpr int shared_bytes() const {
    if (is_gemv()) return pipeline_bytes() + gemv_sums_bytes() + table_bytes();
    if (arch != Arch::sm90a) return pipeline_bytes() + table_bytes();
    return pipeline_bytes() + (input == DType::f64 ? 0 : staging_bytes()) + table_bytes();
  }
  // The same for a packed weight of this format: only table4 has the table.
  constexpr int shared_bytes(WeightFormat format) const {
    return shared_bytes() - (format == WeightFormat::table4 ? 0 : table_bytes());
  }
  // shared_bytes() without the staging buffers.
  constexpr int pipeline_bytes() const { return operand_bytes() + vector_bytes(); }
  // mbarriers: two for a group of stages. A third one says that the terms of b are written.
  constexpr int barrier_bytes() const { return (is_tf32x2() ? 24 : 16) * stage_groups(); }
  // The ring of tiles of a grouped product, kernels/sm90/tile_ring.cuh. It begins at a multiple of
  // 16 bytes.
  static constexpr int kRingSlots = 4;
  constexpr int ring_bytes() const {
    return is_grouped() && uses_tma() ? 8 + kRingSlots * (32 + 16) : 0;
  }
  // The same without the vector.
  constexpr int operand_bytes() const {
    const int operands = stages * stage_bytes();
    if (!has_producer()) return operands;
    return operands + barrier_bytes() + scale_stages() * scale_bytes() + exchange_bytes() +
           ring_bytes();
  }
  constexpr int edge_rows(std::int64_t extent, int tile, int loaded, Major major) const {
    const int rest = int(extent % tile), box = major == Major::K ? 8 : box_mn();
    return rest == 0 ? loaded : (rest + box - 1) / box * box;
  }
};

}  // namespace tcgemm
