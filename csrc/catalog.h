// The table of kernels: one row per compiled kernel. Kernels are instantiated from it, the planner
// chooses from it, and the README's support table, `tcgemm.info` and the tests read it.
//
// A row is a C++20 structural value and the one template argument of its kernel, so adding a kernel
// is adding a row. A tile is tile_m x tile_n of the result and tile_k of depth in one stage:
//
//   sm90a  warpgroups * m64_blocks * 64 rows: each warpgroup owns m64_blocks wgmma rows, n wide
//   sm80   the same block of threads as warps of mma.sync: see kernels/sm80/kernel.cuh
//
// The axes after `stages` name what a mainloop does beyond the plain product; it refuses, when it
// is compiled, a value that it does not serve.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/arch.h"
#include "core/code.h"
#include "core/dtype.h"
#include "core/layout.h"
#include "core/sparse.h"
#include "core/split_fp32.h"

namespace tcgemm {

// Where wgmma reads its first operand: from shared memory, or from registers that a loader fills.
enum class OperandSource : std::uint8_t { SS, RS };

// Operands lie in shared memory in blocks of 64 rows of 64 elements (128 bytes: the widest
// swizzle).
inline constexpr int kBlock = 64;

// Lines of operands whose products are added up as f64 are up to this many bytes longer in shared
// memory: see kernels/sm90/fp64/producer.cuh.
inline constexpr int kPadBytes = 32;

// Each warp turns 16-bit results through a slab of its own, 16 rows of 128 bytes: a box of TMA's.
inline constexpr int kBoxRows = 16;
inline constexpr int kBoxColumns = 64;
inline constexpr int kStagingBytes = kBoxRows * 128;
// Column-major ones leave in boxes of 64 rows, half of what a warpgroup's slabs hold.
inline constexpr int kStoreColumns = 2 * kStagingBytes / 128;

struct GemmConfig {
  Arch arch = Arch::sm90a;
  DType input = DType::bf16;    // of a
  DType input_b = DType::bf16;  // of b: another one in mixed fp8 and int8 products
  DType accumulator = DType::f32;
  Layout layout = Layout::TN;
  int warpgroups = 2;   // those that compute; sm90a adds one that loads
  int m64_blocks = 1;   // blocks of 64 rows a warpgroup
  int n = 256;          // columns of the tile
  int stages = 4;       // depth of the shared-memory ring
  int terms = 1;        // 16-bit parts that an operand is split into
  int promote = 0;      // k-blocks between additions to a second accumulator; 0: never
  bool sparse = false;  // a is, along k: core/sparse.h
  bool block_scaled = false;
  OperandSource operand_source = OperandSource::SS;

  constexpr bool is_dense_ss() const {
    return terms == 1 && promote == 0 && !sparse && !block_scaled &&
           operand_source == OperandSource::SS;
  }
  // Lanes hold neighbours of a column: tile::RowOrder::interleaved.
  constexpr bool interleaved_rows() const { return operand_source == OperandSource::RS || sparse; }
  // Column-major results of this type, and of no other, leave by TMA: tile/tma_store_columns.cuh.
  constexpr DType column_store_dtype() const { return bits(input) == 16 ? input : DType::bf16; }
  constexpr bool tma_stores_columns() const {
    return interleaved_rows() && uses_tma() && n % (2 * kStoreColumns) == 0;
  }
  // Fed by TMA from tensor maps (TmaParams); the others, those that add up f64 among them, read
  // any strides and alignment by cp.async (CpAsyncParams).
  constexpr bool uses_tma() const { return arch == Arch::sm90a && accumulator != DType::f64; }
  // Sums of a k-block are added, scaled or not, to a second set of accumulators.
  constexpr bool promotes() const { return promote != 0 || block_scaled; }
  constexpr int tile_m() const { return warpgroups * m64_blocks * 64; }
  constexpr int tile_n() const { return n; }
  // One stage holds a row of 128 bytes of k: the widest swizzle, and what one TMA box can have. Of
  // three parts there is room for half of that.
  constexpr int row_bytes() const { return terms == kBf16Terms ? 64 : 128; }
  constexpr int tile_k() const { return row_bytes() * 8 / bits(input); }
  // Of a, which has half of it where it is sparse, and metadata.
  constexpr int row_bytes_a() const { return sparse ? row_bytes() / 2 : row_bytes(); }
  constexpr int metadata_bytes() const {
    return sparse ? int(MetadataTiles{tile_m(), tile_k(), bits(input)}.tile_bytes()) : 0;
  }
  // m or n in a box of MN-major lines: 128 bytes.
  constexpr int box_mn() const { return 1024 / bits(input); }
  // sm90a: a warpgroup of its own loads.
  constexpr int threads() const { return 128 * (warpgroups + (arch == Arch::sm90a ? 1 : 0)); }
  constexpr int pad() const { return accumulator == DType::f64 ? kPadBytes / bytes(input) : 0; }
  // What a stage is filled with, and its place: swizzles begin at multiples of 1024 bytes.
  constexpr int loaded_bytes() const {
    const int padding = pad() * bytes(input);
    return terms * (tile_m() * (row_bytes_a() + padding) + tile_n() * (row_bytes() + padding)) +
           metadata_bytes();
  }
  constexpr int stage_bytes() const {
    return uses_tma() ? (loaded_bytes() + 1023) / 1024 * 1024 : loaded_bytes();
  }
  constexpr int staging_bytes() const { return warpgroups * 4 * kStagingBytes; }
  // Scales of the columns of a tile for one k-block.
  constexpr int scale_bytes() const { return block_scaled ? tile_n() * 4 : 0; }
  // Their ring is the deeper one: they are small, and come later than what TMA loads.
  constexpr int scale_stages() const { return block_scaled ? 2 * stages : 0; }
  // Dynamic shared memory: the ring; sm90a adds slabs, but for f64 results, scales and two barriers
  // a stage. sm80 puts its slabs into the ring, which leaves room for three stages on GPUs with 99
  // KB a block.
  constexpr int shared_bytes() const {
    const int ring = stages * stage_bytes();
    if (arch != Arch::sm90a) return ring;
    const int staging = input == DType::f64 ? 0 : staging_bytes();
    return ring + staging + 16 * stages + scale_stages() * (scale_bytes() + 16);
  }
};

namespace catalog {

struct TileShape {
  int warpgroups, m64_blocks, n, stages;
};

// sm90a: 128x256 is the fastest per FLOP, 192x192 fits the waves of 3072 and 6144, and the smaller
// ones fill 132 SMs when the result is small. 256x192, with fewer bytes a FLOP, was nowhere the
// best: 192 accumulators a thread leave three stages and spill in the epilogue.
inline constexpr TileShape kSm90[] = {{2, 1, 256, 4}, {2, 2, 128, 4}, {3, 1, 192, 4},
                                      {2, 1, 192, 5}, {2, 1, 128, 6}, {1, 1, 256, 5},
                                      {1, 1, 128, 8}, {1, 1, 64, 12}};
// An f16 accumulator brings no rate on Hopper, so it gets the tiles that serve every size.
inline constexpr TileShape kSm90F16[] = {
    {2, 1, 256, 4}, {2, 1, 128, 6}, {1, 1, 256, 5}, {1, 1, 128, 8}, {1, 1, 64, 12}};
// Mixed 8-bit operands: the large, the usual and the small.
inline constexpr TileShape kSm90Few[] = {{2, 1, 256, 4}, {2, 1, 128, 6}, {1, 1, 64, 12}};
// Two sets of accumulators.
inline constexpr TileShape kSm90Promoted[] = {
    {2, 1, 256, 4}, {2, 1, 128, 6}, {1, 1, 128, 8}, {1, 1, 64, 12}};
inline constexpr TileShape kSm90PromotedFew[] = {{2, 1, 128, 6}};
// Operands in parts: stages hold all of them.
inline constexpr TileShape kSm90F16x2[] = {
    {2, 1, 256, 2}, {2, 1, 192, 2}, {2, 1, 128, 3}, {1, 1, 128, 4}, {1, 1, 64, 6}};
inline constexpr TileShape kSm90Bf16x3[] = {{2, 1, 256, 2}, {2, 1, 128, 4}};
// a from registers, in boxes of 128 bytes of m: no tile has fewer rows than 128 of s8.
inline constexpr TileShape kSm90Rs[] = {{2, 1, 256, 4}, {2, 1, 128, 6}, {2, 1, 64, 8}};
// Sparse ones: the tensor cores read b, which is dense, twice as fast as elsewhere, and a wide tile
// the fewest times. The narrow ones are for few columns (64x64 and 64x32, which would fill more of
// the machine, took longer), and 192x192 serves what 128x256 would need a second wave for: 1.4
// times as fast there; beside s32 it would spill.
inline constexpr TileShape kSm90Sparse[] = {{2, 1, 256, 5}, {3, 1, 192, 5}, {2, 1, 192, 6},
                                            {2, 1, 128, 8}, {2, 1, 64, 12}, {2, 1, 32, 16}};
inline constexpr TileShape kSm90SparseFp8[] = {{2, 1, 256, 5}, {3, 1, 192, 5}, {2, 1, 192, 6},
                                               {2, 1, 128, 8}, {2, 1, 64, 11}, {2, 1, 32, 14}};
inline constexpr TileShape kSm90SparseInt8[] = {
    {2, 1, 256, 5}, {2, 1, 192, 6}, {2, 1, 128, 8}, {2, 1, 64, 11}, {2, 1, 32, 14}};
inline constexpr TileShape kSm90SparseFew[] = {{2, 1, 256, 5}, {2, 1, 64, 10}};
// f64: 128x128 for large products, 128x112 fits the waves of 4096 and 8192 on 132 SMs, and half of
// 128x128, twice, those of 1024.
inline constexpr TileShape kSm90F64[] = {
    {2, 1, 128, 5}, {2, 1, 112, 5}, {2, 1, 64, 7}, {1, 1, 128, 7}, {1, 1, 64, 8}};
// f32, added up as f64: 64x64 is also what computes flagged tiles again, and 64x32 fills the
// machine with 512 x 512.
inline constexpr TileShape kSm90F32[] = {
    {2, 1, 128, 5}, {2, 1, 64, 6}, {1, 1, 64, 8}, {1, 1, 32, 10}};
// 128x256 and 128x128 reuse most from shared memory, 64x64 fills the machine.
inline constexpr TileShape kSm80[] = {{2, 1, 256, 3}, {2, 1, 128, 3}, {1, 1, 64, 4}};
inline constexpr TileShape kSm80Few[] = {{2, 1, 128, 3}, {1, 1, 64, 4}};
// Beside a sparse a, twice the fragments of b: 256 columns would spill.
inline constexpr TileShape kSm80Sparse[] = {{2, 1, 128, 3}, {1, 1, 64, 4}};

// Bits by layout.
using Layouts = unsigned;
constexpr Layouts only(Layout layout) { return 1u << int(layout); }
inline constexpr Layouts kAllLayouts = (1u << kLayouts) - 1;

// Rows that differ in tile and layout alone. Operands that wgmma reads K-major only, 8-bit ones and
// tf32, come in TN; the planner has others copied, or turned on the way from registers (TT).
struct ConfigFamily {
  Arch arch;
  DType input, input_b, accumulator;
  const TileShape* tiles;
  int tile_count;
  Layouts layouts;
  int promote = 0;
  bool block_scaled = false;
  OperandSource operand_source = OperandSource::SS;
  int terms = 1;
  bool sparse = false;
};

template <int kCount>
constexpr ConfigFamily family(Arch arch, DType a, DType b, DType accumulator,
                              const TileShape (&tiles)[kCount], bool all_layouts, int promote = 0,
                              bool block_scaled = false) {
  const Layouts layouts = all_layouts ? kAllLayouts : only(Layout::TN);
  return {arch, a, b, accumulator, tiles, kCount, layouts, promote, block_scaled};
}

template <int kCount>
constexpr ConfigFamily rs_family(DType input, DType accumulator, const TileShape (&tiles)[kCount]) {
  ConfigFamily rows = family(Arch::sm90a, input, input, accumulator, tiles, false);
  rows.layouts = only(Layout::TT);
  rows.operand_source = OperandSource::RS;
  return rows;
}

// f32 operands in parts of a 16-bit type: core/split_fp32.h.
template <int kCount>
constexpr ConfigFamily split_fp32_family(DType input, int terms, const TileShape (&tiles)[kCount]) {
  ConfigFamily rows = family(Arch::sm90a, input, input, DType::f32, tiles, true, 1);
  rows.terms = terms;
  return rows;
}

// a is compressed, and so K-major.
template <int kCount>
constexpr ConfigFamily sparse_family(Arch arch, DType input, DType input_b, DType accumulator,
                                     const TileShape (&tiles)[kCount]) {
  ConfigFamily rows = family(arch, input, input_b, accumulator, tiles, false);
  if (bits(input) == 16) rows.layouts |= only(Layout::NN);
  rows.sparse = true;
  return rows;
}

using enum DType;
inline constexpr ConfigFamily kFamilies[] = {
    family(Arch::sm90a, bf16, bf16, f32, kSm90, true),
    family(Arch::sm90a, f16, f16, f32, kSm90, true),
    family(Arch::sm90a, f16, f16, f16, kSm90F16, true),
    family(Arch::sm90a, tf32, tf32, f32, kSm90, false),
    rs_family(tf32, f32, kSm90Rs),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90, false),
    family(Arch::sm90a, e4m3, e5m2, f32, kSm90Few, false),
    family(Arch::sm90a, e5m2, e4m3, f32, kSm90Few, false),
    family(Arch::sm90a, e5m2, e5m2, f32, kSm90Few, false),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90Promoted, false, 1),
    family(Arch::sm90a, e4m3, e5m2, f32, kSm90PromotedFew, false, 1),
    family(Arch::sm90a, e5m2, e4m3, f32, kSm90PromotedFew, false, 1),
    family(Arch::sm90a, e5m2, e5m2, f32, kSm90PromotedFew, false, 1),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90Promoted, false, 1, true),
    family(Arch::sm90a, e4m3, e5m2, f32, kSm90PromotedFew, false, 1, true),
    family(Arch::sm90a, e5m2, e4m3, f32, kSm90PromotedFew, false, 1, true),
    family(Arch::sm90a, e5m2, e5m2, f32, kSm90PromotedFew, false, 1, true),
    family(Arch::sm90a, s8, s8, s32, kSm90, false),
    rs_family(s8, s32, kSm90Rs),
    family(Arch::sm90a, s8, u8, s32, kSm90Few, false),
    family(Arch::sm90a, u8, s8, s32, kSm90Few, false),
    family(Arch::sm90a, u8, u8, s32, kSm90Few, false),
    family(Arch::sm90a, f64, f64, f64, kSm90F64, true),
    family(Arch::sm90a, f32, f32, f64, kSm90F32, true),
    split_fp32_family(f16, kF16Terms, kSm90F16x2),
    split_fp32_family(bf16, kBf16Terms, kSm90Bf16x3),
    sparse_family(Arch::sm90a, bf16, bf16, f32, kSm90Sparse),
    sparse_family(Arch::sm90a, f16, f16, f32, kSm90Sparse),
    sparse_family(Arch::sm90a, tf32, tf32, f32, kSm90Sparse),
    sparse_family(Arch::sm90a, e4m3, e4m3, f32, kSm90SparseFp8),
    sparse_family(Arch::sm90a, e4m3, e5m2, f32, kSm90SparseFew),
    sparse_family(Arch::sm90a, e5m2, e4m3, f32, kSm90SparseFew),
    sparse_family(Arch::sm90a, e5m2, e5m2, f32, kSm90SparseFew),
    sparse_family(Arch::sm90a, s8, s8, s32, kSm90SparseInt8),
    sparse_family(Arch::sm90a, s8, u8, s32, kSm90SparseFew),
    sparse_family(Arch::sm90a, u8, s8, s32, kSm90SparseFew),
    sparse_family(Arch::sm90a, u8, u8, s32, kSm90SparseFew),
    family(Arch::sm80, bf16, bf16, f32, kSm80, true),
    family(Arch::sm80, f16, f16, f32, kSm80, true),
    family(Arch::sm80, f16, f16, f16, kSm80, true),
    family(Arch::sm80, tf32, tf32, f32, kSm80, false),
    family(Arch::sm80, s8, s8, s32, kSm80, false),
    family(Arch::sm80, s8, u8, s32, kSm80Few, false),
    family(Arch::sm80, u8, s8, s32, kSm80Few, false),
    family(Arch::sm80, u8, u8, s32, kSm80Few, false),
    sparse_family(Arch::sm80, bf16, bf16, f32, kSm80Sparse),
    sparse_family(Arch::sm80, f16, f16, f32, kSm80Sparse),
    sparse_family(Arch::sm80, tf32, tf32, f32, kSm80Sparse),
    sparse_family(Arch::sm80, s8, s8, s32, kSm80Sparse),
    sparse_family(Arch::sm80, s8, u8, s32, kSm80Sparse),
    sparse_family(Arch::sm80, u8, s8, s32, kSm80Sparse),
    sparse_family(Arch::sm80, u8, u8, s32, kSm80Sparse),
    family(Arch::sm89, e4m3, e4m3, f32, kSm80Few, false),
    family(Arch::sm89, e4m3, e5m2, f32, kSm80Few, false),
    family(Arch::sm89, e5m2, e4m3, f32, kSm80Few, false),
    family(Arch::sm89, e5m2, e5m2, f32, kSm80Few, false),
    family(Arch::sm89, e4m3, e4m3, f32, kSm80Few, false, 1),
    family(Arch::sm89, e4m3, e5m2, f32, kSm80Few, false, 1),
    family(Arch::sm89, e5m2, e4m3, f32, kSm80Few, false, 1),
    family(Arch::sm89, e5m2, e5m2, f32, kSm80Few, false, 1),
    family(Arch::sm89, e4m3, e4m3, f32, kSm80Few, false, 1, true),
    family(Arch::sm89, e4m3, e5m2, f32, kSm80Few, false, 1, true),
    family(Arch::sm89, e5m2, e4m3, f32, kSm80Few, false, 1, true),
    family(Arch::sm89, e5m2, e5m2, f32, kSm80Few, false, 1, true),
};

constexpr bool has(const ConfigFamily& family, const TileShape& tile, Layout layout) {
  // Columns of MN-major b come in blocks of 64.
  const bool blocks = family.arch != Arch::sm90a || bits(family.input) != 16 ||
                      tile.n % kBlock == 0 || major_b(layout) == Major::K;
  return blocks && (family.layouts & only(layout)) != 0;
}

constexpr std::size_t count() {
  std::size_t rows = 0;
  for (const ConfigFamily& family : kFamilies)
    for (int tile = 0; tile < family.tile_count; ++tile)
      for (int layout = 0; layout < kLayouts; ++layout)
        rows += has(family, family.tiles[tile], Layout(layout));
  return rows;
}

constexpr auto rows() {
  std::array<GemmConfig, count()> table{};
  std::size_t row = 0;
  for (const ConfigFamily& family : kFamilies)
    for (int tile = 0; tile < family.tile_count; ++tile)
      for (int layout = 0; layout < kLayouts; ++layout) {
        if (!has(family, family.tiles[tile], Layout(layout))) continue;
        GemmConfig& config = table[row++];
        config.arch = family.arch;
        config.input = family.input;
        config.input_b = family.input_b;
        config.accumulator = family.accumulator;
        config.layout = Layout(layout);
        config.warpgroups = family.tiles[tile].warpgroups;
        config.m64_blocks = family.tiles[tile].m64_blocks;
        config.n = family.tiles[tile].n;
        config.stages = family.tiles[tile].stages;
        config.promote = family.promote;
        config.block_scaled = family.block_scaled;
        config.operand_source = family.operand_source;
        config.terms = family.terms;
        config.sparse = family.sparse;
      }
  return table;
}

}  // namespace catalog

inline constexpr auto kCatalog = catalog::rows();

// A row's name, for people and for filters: sm90a_bf16_f32_128x256x64_w2_s4_tn. Mixed operands are
// e4m3xe5m2; the end says what is beyond the plain product: _promoted, _blocks, _registers,
// _parts2, _sparse.
struct ConfigName {
  char text[64] = {};
  int length = 0;

  constexpr void add(std::string_view part) {
    for (char letter : part) text[length++] = letter;
  }
  constexpr void add(int number) {
    if (number >= 10) add(number / 10);
    text[length++] = char('0' + number % 10);
  }
  constexpr operator std::string_view() const { return {text, std::size_t(length)}; }
};

constexpr ConfigName name(const GemmConfig& config) {
  ConfigName result;
  result.add(name(config.arch));
  result.add("_");
  result.add(name(config.input));
  if (config.input_b != config.input) {
    result.add("x");
    result.add(name(config.input_b));
  }
  result.add("_");
  result.add(name(config.accumulator));
  result.add("_");
  result.add(config.tile_m());
  result.add("x");
  result.add(config.tile_n());
  result.add("x");
  result.add(config.tile_k());
  result.add("_w");
  result.add(config.warpgroups);
  result.add("_s");
  result.add(config.stages);
  result.add("_");
  for (char letter : std::string_view(name(config.layout))) result.add(letter == 'T' ? "t" : "n");
  if (config.terms > 1) {
    result.add("_parts");
    result.add(config.terms);
  } else if (config.block_scaled)
    result.add("_blocks");
  else if (config.promote != 0)
    result.add("_promoted");
  if (config.operand_source == OperandSource::RS) result.add("_registers");
  if (config.sparse) result.add("_sparse");
  return result;
}

// True if `text` contains one of the comma-separated words of `filter`, or the filter is empty.
constexpr bool matches(std::string_view text, std::string_view filter) {
  if (filter.empty()) return true;
  while (!filter.empty()) {
    const std::size_t comma = filter.find(',');
    const std::string_view word = filter.substr(0, comma);
    if (!word.empty() && text.find(word) != std::string_view::npos) return true;
    filter = comma == std::string_view::npos ? std::string_view{} : filter.substr(comma + 1);
  }
  return false;
}

#ifndef TCGEMM_KERNELS
#define TCGEMM_KERNELS ""
#endif
// Is the row's code in this build? TCGEMM_KERNELS and TCGEMM_ARCHES are the build's choice; which
// GPUs run it, code_on says.
constexpr bool built(const GemmConfig& config) {
  return compiled(config.arch) && matches(name(config), TCGEMM_KERNELS);
}

}  // namespace tcgemm
