// The table of kernels: one row (core/gemm_config.h) per compiled kernel. The instances of kernels,
// the planner, the support table, `tcgemm.info` and the tests read it. To add a kernel, add a row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/code.h"
#include "core/gemm_config.h"
#include "core/tile_shapes.h"

namespace tcgemm {

namespace catalog {

// A set of layouts, one bit each.
using Layouts = unsigned;
constexpr Layouts only(Layout layout) { return 1u << int(layout); }
inline constexpr Layouts kAll = (1u << kLayouts) - 1;
inline constexpr Layouts kTN = only(Layout::TN);

// Rows that differ in tile and layout alone. wgmma reads 8-bit and tf32 operands K-major only, so
// these have TN rows; the planner repacks other layouts, or takes an RS row (TT).
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
  int weight_bits = 0;
  bool mma_sync = false;
};

template <int kCount>
constexpr ConfigFamily family(Arch arch, DType a, DType b, DType accumulator,
                              const TileShape (&tiles)[kCount], Layouts layouts, int promote = 0,
                              bool block_scaled = false) {
  return {arch, a, b, accumulator, tiles, kCount, layouts, promote, block_scaled};
}

template <int kCount>
constexpr ConfigFamily rs_family(DType input, DType accumulator, const TileShape (&tiles)[kCount]) {
  ConfigFamily rows = family(Arch::sm90a, input, input, accumulator, tiles, only(Layout::TT));
  rows.operand_source = OperandSource::RS;
  return rows;
}

// f32 operands as terms of a 16-bit type: core/split_fp32.h.
template <int kCount>
constexpr ConfigFamily split_fp32_family(DType input, int terms, const TileShape (&tiles)[kCount]) {
  ConfigFamily rows = family(Arch::sm90a, input, input, DType::f32, tiles, kAll, 1);
  rows.terms = terms;
  return rows;
}

// a is compressed, and so K-major.
template <int kCount>
constexpr ConfigFamily sparse_family(Arch arch, DType input, DType input_b, DType accumulator,
                                     const TileShape (&tiles)[kCount]) {
  ConfigFamily rows = family(arch, input, input_b, accumulator, tiles, kTN);
  if (bits(input) == 16) rows.layouts |= only(Layout::NN);
  rows.sparse = true;
  return rows;
}

template <int kCount>
constexpr ConfigFamily packed_family(Arch arch, DType input, int bits,
                                     const TileShape (&tiles)[kCount], bool mma_sync = false) {
  ConfigFamily rows = family(arch, input, input, DType::f32, tiles, kTN);
  rows.weight_bits = bits;
  rows.mma_sync = mma_sync;
  if (tiles[0].gemv_rows == 0) rows.operand_source = OperandSource::RS;
  return rows;
}

using enum DType;
inline constexpr ConfigFamily kFamilies[] = {
    family(Arch::sm90a, bf16, bf16, f32, kSm90, kAll),
    family(Arch::sm90a, bf16, bf16, f32, kSm90Narrow, kTN),
    family(Arch::sm90a, f16, f16, f32, kSm90, kAll),
    family(Arch::sm90a, f16, f16, f32, kSm90Narrow, kTN),
    family(Arch::sm90a, f16, f16, f16, kSm90F16, kAll),
    family(Arch::sm90a, tf32, tf32, f32, kSm90, kTN),
    family(Arch::sm90a, tf32, tf32, f32, kSm90Narrow, kTN),
    rs_family(tf32, f32, kSm90Rs),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90, kTN),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90Narrow, kTN),
    family(Arch::sm90a, e4m3, e5m2, f32, kSm90Few, kTN),
    family(Arch::sm90a, e5m2, e4m3, f32, kSm90Few, kTN),
    family(Arch::sm90a, e5m2, e5m2, f32, kSm90Few, kTN),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90Promoted, kTN, 1),
    family(Arch::sm90a, e4m3, e5m2, f32, kSm90PromotedFew, kTN, 1),
    family(Arch::sm90a, e5m2, e4m3, f32, kSm90PromotedFew, kTN, 1),
    family(Arch::sm90a, e5m2, e5m2, f32, kSm90PromotedFew, kTN, 1),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90Promoted, kTN, 1, true),
    family(Arch::sm90a, e4m3, e5m2, f32, kSm90PromotedFew, kTN, 1, true),
    family(Arch::sm90a, e5m2, e4m3, f32, kSm90PromotedFew, kTN, 1, true),
    family(Arch::sm90a, e5m2, e5m2, f32, kSm90PromotedFew, kTN, 1, true),
    family(Arch::sm90a, s8, s8, s32, kSm90, kTN),
    family(Arch::sm90a, s8, s8, s32, kSm90Narrow, kTN),
    rs_family(s8, s32, kSm90Rs),
    family(Arch::sm90a, s8, u8, s32, kSm90Few, kTN),
    family(Arch::sm90a, u8, s8, s32, kSm90Few, kTN),
    family(Arch::sm90a, u8, u8, s32, kSm90Few, kTN),
    family(Arch::sm90a, f64, f64, f64, kSm90F64, kAll),
    family(Arch::sm90a, f32, f32, f64, kSm90F32, kAll),
    family(Arch::sm90a, bf16, bf16, f32, kSm90Gemv, kTN),
    family(Arch::sm90a, f16, f16, f32, kSm90Gemv, kTN),
    family(Arch::sm90a, tf32, tf32, f32, kSm90Gemv, kTN),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90Gemv, kTN),
    family(Arch::sm90a, e4m3, e5m2, f32, kSm90GemvFew, kTN),
    family(Arch::sm90a, e5m2, e4m3, f32, kSm90GemvFew, kTN),
    family(Arch::sm90a, e5m2, e5m2, f32, kSm90GemvFew, kTN),
    family(Arch::sm90a, s8, s8, s32, kSm90Gemv, kTN),
    family(Arch::sm90a, s8, u8, s32, kSm90GemvFew, kTN),
    family(Arch::sm90a, u8, s8, s32, kSm90GemvFew, kTN),
    family(Arch::sm90a, u8, u8, s32, kSm90GemvFew, kTN),
    family(Arch::sm90a, f64, f64, f64, kSm90GemvF64, kTN),
    family(Arch::sm90a, f32, f32, f64, kSm90GemvF64, kTN),
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
    family(Arch::sm80, bf16, bf16, f32, kSm80, kAll),
    family(Arch::sm80, f16, f16, f32, kSm80, kAll),
    family(Arch::sm80, f16, f16, f16, kSm80, kAll),
    family(Arch::sm80, tf32, tf32, f32, kSm80, kTN),
    family(Arch::sm80, s8, s8, s32, kSm80, kTN),
    family(Arch::sm80, s8, u8, s32, kSm80Few, kTN),
    family(Arch::sm80, u8, s8, s32, kSm80Few, kTN),
    family(Arch::sm80, u8, u8, s32, kSm80Few, kTN),
    sparse_family(Arch::sm80, bf16, bf16, f32, kSm80Sparse),
    sparse_family(Arch::sm80, f16, f16, f32, kSm80Sparse),
    sparse_family(Arch::sm80, tf32, tf32, f32, kSm80Sparse),
    sparse_family(Arch::sm80, s8, s8, s32, kSm80Sparse),
    sparse_family(Arch::sm80, s8, u8, s32, kSm80Sparse),
    sparse_family(Arch::sm80, u8, s8, s32, kSm80Sparse),
    sparse_family(Arch::sm80, u8, u8, s32, kSm80Sparse),
    family(Arch::sm89, e4m3, e4m3, f32, kSm80Few, kTN),
    family(Arch::sm89, e4m3, e5m2, f32, kSm80Few, kTN),
    family(Arch::sm89, e5m2, e4m3, f32, kSm80Few, kTN),
    family(Arch::sm89, e5m2, e5m2, f32, kSm80Few, kTN),
    family(Arch::sm89, e4m3, e4m3, f32, kSm80Few, kTN, 1),
    family(Arch::sm89, e4m3, e5m2, f32, kSm80Few, kTN, 1),
    family(Arch::sm89, e5m2, e4m3, f32, kSm80Few, kTN, 1),
    family(Arch::sm89, e5m2, e5m2, f32, kSm80Few, kTN, 1),
    family(Arch::sm89, e4m3, e4m3, f32, kSm80Few, kTN, 1, true),
    family(Arch::sm89, e4m3, e5m2, f32, kSm80Few, kTN, 1, true),
    family(Arch::sm89, e5m2, e4m3, f32, kSm80Few, kTN, 1, true),
    family(Arch::sm89, e5m2, e5m2, f32, kSm80Few, kTN, 1, true),
    packed_family(Arch::sm90a, bf16, 4, kSm90Packed),
    packed_family(Arch::sm90a, bf16, 8, kSm90Packed),
    packed_family(Arch::sm90a, f16, 4, kSm90Packed),
    packed_family(Arch::sm90a, f16, 8, kSm90Packed),
    packed_family(Arch::sm90a, bf16, 4, kSm90PackedMma, true),
    packed_family(Arch::sm90a, bf16, 8, kSm90PackedMma, true),
    packed_family(Arch::sm90a, f16, 4, kSm90PackedMma, true),
    packed_family(Arch::sm90a, f16, 8, kSm90PackedMma, true),
    packed_family(Arch::sm90a, bf16, 4, kSm90PackedGemv),
    packed_family(Arch::sm90a, bf16, 8, kSm90PackedGemv),
    packed_family(Arch::sm90a, f16, 4, kSm90PackedGemv),
    packed_family(Arch::sm90a, f16, 8, kSm90PackedGemv),
    family(Arch::sm80, f64, f64, f64, kSm80F64, kAll),
    family(Arch::sm80, s4, s4, s32, kSm80Few, kTN),
    family(Arch::sm80, s4, u4, s32, kSm80Few, kTN),
    family(Arch::sm80, u4, s4, s32, kSm80Few, kTN),
    family(Arch::sm80, u4, u4, s32, kSm80Few, kTN),
    family(Arch::sm80, b1, b1, s32, kSm80Few, kTN),
    family(Arch::sm90a, b1, b1, s32, kSm90Bits, kTN),
    packed_family(Arch::sm80, bf16, 4, kSm80Packed),
    packed_family(Arch::sm80, bf16, 8, kSm80Packed),
    packed_family(Arch::sm80, f16, 4, kSm80Packed),
    packed_family(Arch::sm80, f16, 8, kSm80Packed),
    packed_family(Arch::sm80, bf16, 4, kSm80PackedGemv),
    packed_family(Arch::sm80, bf16, 8, kSm80PackedGemv),
    packed_family(Arch::sm80, f16, 4, kSm80PackedGemv),
    packed_family(Arch::sm80, f16, 8, kSm80PackedGemv),
    packed_family(Arch::sm90a, bf16, 4, kSm90PackedGemvClusters),
    packed_family(Arch::sm90a, bf16, 8, kSm90PackedGemvClusters),
    packed_family(Arch::sm90a, f16, 4, kSm90PackedGemvClusters),
    packed_family(Arch::sm90a, f16, 8, kSm90PackedGemvClusters),
};

constexpr bool has(const ConfigFamily& family, const TileShape& tile, Layout layout) {
  // Columns of MN-major b come in boxes of 64.
  const bool blocks = family.arch != Arch::sm90a || bits(family.input) != 16 || tile.n >= kBlock ||
                      major_b(layout) == Major::K;
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
        config.pingpong = family.tiles[tile].pingpong;
        config.split_n = family.tiles[tile].split_n;
        config.gemv_rows = family.tiles[tile].gemv_rows;
        config.gemv_ctas = family.tiles[tile].gemv_ctas;
        config.promote = family.promote;
        config.block_scaled = family.block_scaled;
        config.operand_source = family.operand_source;
        config.terms = family.terms;
        config.sparse = family.sparse;
        config.weight_bits = family.weight_bits;
        config.mma_sync = family.mma_sync;
      }
  return table;
}

}  // namespace catalog

inline constexpr auto kCatalog = catalog::rows();

static_assert(
    [] {
      for (const GemmConfig& config : kCatalog)
        if (config.split_n && config.uses_tma()) return false;
      return true;
    }(),
    "only the kernels that accumulate in f64 split the columns of a tile");

// The name of a row, for people and for filters: sm90a_bf16_f32_128x256x64_w2_s4_tn. Mixed operands
// are e4m3xe5m2. The end names the mainloop features: _promoted, _block_scaled, _rs, _f16x2,
// _bf16x3, _sparse, _pingpong, _gemv, _packed4, _packed8, _mma, and _c2 for a cluster of two that
// divides k.
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
    result.add(config.terms == kF16Terms ? "_f16x2" : "_bf16x3");
  } else if (config.block_scaled)
    result.add("_block_scaled");
  else if (config.promote != 0)
    result.add("_promoted");
  if (config.operand_source == OperandSource::RS && !config.has_packed_weight()) result.add("_rs");
  if (config.sparse) result.add("_sparse");
  if (config.pingpong) result.add("_pingpong");
  if (config.has_packed_weight()) {
    result.add("_packed");
    result.add(config.weight_bits);
    if (config.mma_sync) result.add("_mma");
    if (config.gemv_ctas > 1) {
      result.add("_c");
      result.add(config.gemv_ctas);
    }
  }
  if (config.is_gemv()) result.add("_gemv");
  return result;
}

// True if `text` contains one of the comma-separated parts of `filter`, or if `filter` is empty.
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
constexpr bool selected(const GemmConfig& config) { return matches(name(config), TCGEMM_KERNELS); }

// Is the code of the row in this build? TCGEMM_KERNELS and TCGEMM_ARCHES select it; code_on says
// which GPUs run it.
constexpr bool built(const GemmConfig& config) { return compiled(config.arch) && selected(config); }

}  // namespace tcgemm
