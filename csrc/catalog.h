// The table of kernels: one row (core/gemm_config.h) per compiled kernel. The instances of kernels,
// the planner, the support table, `tcgemm.info` and the tests read it. To add a kernel, add a row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/code.h"
#include "core/gemm_config.h"

namespace tcgemm {

namespace catalog {

struct TileShape {
  int warpgroups, m64_blocks, n, stages;
  bool pingpong = false;
  bool split_n = false;
  int gemv_rows = 0;
};

// sm90a: 128x256 is the fastest per FLOP, 192x192 fits the waves of 3072 and 6144, and the smaller
// tiles fill 132 SMs if the result is small. 256x192 loads fewer bytes per FLOP but was never the
// fastest: 192 accumulators per thread leave three stages and spill in the epilogue.
inline constexpr TileShape kSm90[] = {
    {2, 1, 256, 4}, {2, 2, 128, 4}, {3, 1, 192, 4}, {2, 1, 192, 5},      {2, 1, 128, 6},
    {1, 1, 256, 5}, {1, 1, 128, 8}, {1, 1, 64, 12}, {2, 1, 320, 3},      {2, 1, 224, 4},
    {2, 1, 208, 4}, {2, 1, 176, 5}, {2, 1, 144, 5}, {2, 2, 128, 6, true}};
// Few rows: so many columns that the tiles of 4096, 6144 and 28672 columns fill 132 SMs, with up to
// 64 rows or with 128 and 256.
inline constexpr TileShape kSm90Narrow[] = {
    {1, 1, 32, 18}, {1, 1, 48, 14}, {1, 1, 224, 5}, {2, 1, 48, 9}, {2, 1, 96, 7}};
// An FP16 accumulator is not faster on Hopper, so it has only the tiles that cover every size.
inline constexpr TileShape kSm90F16[] = {
    {2, 1, 256, 4}, {2, 1, 128, 6}, {1, 1, 256, 5}, {1, 1, 128, 8}, {1, 1, 64, 12}};
// Mixed 8-bit operands, and b1: one large, one medium and one small tile.
inline constexpr TileShape kSm90Few[] = {{2, 1, 256, 4}, {2, 1, 128, 6}, {1, 1, 64, 12}};
// Promoted kernels have partial sums beside the accumulators. 128x192 fits the waves of 8192, and
// 128x144 those of 2112 columns.
inline constexpr TileShape kSm90Promoted[] = {{2, 1, 256, 4}, {2, 1, 192, 5}, {2, 1, 144, 5},
                                              {2, 1, 128, 6}, {1, 1, 128, 8}, {1, 1, 64, 12}};
inline constexpr TileShape kSm90PromotedFew[] = {{2, 1, 128, 6}};
// Split FP32: a stage holds all terms.
inline constexpr TileShape kSm90F16x2[] = {
    {2, 1, 256, 2}, {2, 1, 192, 2}, {2, 1, 128, 3}, {1, 1, 128, 4}, {1, 1, 64, 6}};
inline constexpr TileShape kSm90Bf16x3[] = {{2, 1, 256, 2}, {2, 1, 128, 4}};
// RS: A is loaded in boxes of 128 bytes of m, so a tile has at least 128 rows of s8.
inline constexpr TileShape kSm90Rs[] = {{2, 1, 256, 4}, {2, 1, 128, 6}, {2, 1, 64, 8}};
// 2:4: wgmma.sp reads the dense B at twice the usual rate, and a wide tile reads it the fewest
// times. The narrow tiles are for few columns; 64x64 and 64x32 would fill more SMs but took longer.
// 192x192 is 1.4 times as fast where 128x256 needs a second wave; with s32 it would spill.
inline constexpr TileShape kSm90Sparse[] = {{2, 1, 256, 5}, {3, 1, 192, 5}, {2, 1, 192, 6},
                                            {2, 1, 128, 8}, {2, 1, 64, 12}, {2, 1, 32, 16}};
inline constexpr TileShape kSm90SparseFp8[] = {{2, 1, 256, 5}, {3, 1, 192, 5}, {2, 1, 192, 6},
                                               {2, 1, 128, 8}, {2, 1, 64, 11}, {2, 1, 32, 14}};
inline constexpr TileShape kSm90SparseInt8[] = {
    {2, 1, 256, 5}, {2, 1, 192, 6}, {2, 1, 128, 8}, {2, 1, 64, 11}, {2, 1, 32, 14}};
inline constexpr TileShape kSm90SparseFew[] = {{2, 1, 256, 5}, {2, 1, 64, 10}};
// FP64: 128x128 is for large GEMMs, the others fit the waves of smaller ones on 132 SMs: 128x112
// those of 4096 and 8192, 128x64 those of 1024. 64x128 is for few rows in slices of k. Eight warps
// multiply, because four leave the tensor cores idle for a third of the time. 64x16 has four: it is
// for results of fewer than 132 tiles.
inline constexpr TileShape kSm90F64[] = {{2, 1, 128, 5},
                                         {2, 1, 112, 6},
                                         {2, 1, 96, 6},
                                         {2, 1, 80, 6},
                                         {2, 1, 64, 7},
                                         {2, 1, 48, 8},
                                         {2, 1, 128, 7, false, true},
                                         {2, 1, 80, 9, false, true},
                                         {2, 1, 64, 11, false, true},
                                         {2, 1, 32, 15, false, true},
                                         {1, 1, 16, 16}};
// GEMV, for few rows, which the bytes of b bound. Tiles of 32, 48 and 64 columns divide 4096, 6144
// and 7168 columns among 132 SMs. With 16 rows a cluster of two shares a tile of twice the columns,
// so that the bytes of a stay below those of b. 32 rows pay off where the other kernels are slow.
// The number of warps decides the order of the sums: all tiles of a type that have no cluster have
// the same one.
inline constexpr TileShape kSm90Gemv[] = {{2, 1, 32, 4, false, false, 8},
                                          {2, 1, 48, 3, false, false, 8},
                                          {2, 1, 64, 3, false, false, 8},
                                          {2, 1, 64, 2, false, false, 16}};
inline constexpr TileShape kSm90GemvFew[] = {{2, 1, 32, 4, false, false, 8},
                                             {2, 1, 64, 2, false, false, 16}};
inline constexpr TileShape kSm90GemvF64[] = {{4, 1, 32, 2, false, false, 8},
                                             {2, 1, 64, 2, false, false, 16},
                                             {2, 1, 64, 2, false, false, 32}};
// FP32 accumulated as FP64: 64x64 is also the tile of the recompute mask, and 64x32 fills the GPU
// at 512 x 512.
inline constexpr TileShape kSm90F32[] = {
    {2, 1, 128, 5}, {2, 1, 64, 6}, {1, 1, 64, 8}, {1, 1, 32, 10}};
// mma.sync: 128x256 and 128x128 reuse shared memory the most, 64x64 fills the GPU.
inline constexpr TileShape kSm80[] = {{2, 1, 256, 3}, {2, 1, 128, 3}, {1, 1, 64, 4}};
// int4 has no 128x256: in code for 9.0a, where ptxas unpacks it, such a tile spills.
inline constexpr TileShape kSm80Few[] = {{2, 1, 128, 3}, {1, 1, 64, 4}};
// FP64 of sm_80: three stages of 128x64 fit 99 KB.
inline constexpr TileShape kSm80F64[] = {{2, 1, 64, 3}, {1, 1, 64, 4}};
// mma.sp needs twice the fragments of B: 256 columns would spill.
inline constexpr TileShape kSm80Sparse[] = {{2, 1, 128, 3}, {1, 1, 64, 4}};

// A set of layouts, one bit each.
using Layouts = unsigned;
constexpr Layouts only(Layout layout) { return 1u << int(layout); }
inline constexpr Layouts kAllLayouts = (1u << kLayouts) - 1;

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

// f32 operands as terms of a 16-bit type: core/split_fp32.h.
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
    family(Arch::sm90a, bf16, bf16, f32, kSm90Narrow, false),
    family(Arch::sm90a, f16, f16, f32, kSm90, true),
    family(Arch::sm90a, f16, f16, f32, kSm90Narrow, false),
    family(Arch::sm90a, f16, f16, f16, kSm90F16, true),
    family(Arch::sm90a, tf32, tf32, f32, kSm90, false),
    family(Arch::sm90a, tf32, tf32, f32, kSm90Narrow, false),
    rs_family(tf32, f32, kSm90Rs),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90, false),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90Narrow, false),
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
    family(Arch::sm90a, s8, s8, s32, kSm90Narrow, false),
    rs_family(s8, s32, kSm90Rs),
    family(Arch::sm90a, s8, u8, s32, kSm90Few, false),
    family(Arch::sm90a, u8, s8, s32, kSm90Few, false),
    family(Arch::sm90a, u8, u8, s32, kSm90Few, false),
    family(Arch::sm90a, f64, f64, f64, kSm90F64, true),
    family(Arch::sm90a, f32, f32, f64, kSm90F32, true),
    family(Arch::sm90a, bf16, bf16, f32, kSm90Gemv, false),
    family(Arch::sm90a, f16, f16, f32, kSm90Gemv, false),
    family(Arch::sm90a, tf32, tf32, f32, kSm90Gemv, false),
    family(Arch::sm90a, e4m3, e4m3, f32, kSm90Gemv, false),
    family(Arch::sm90a, e4m3, e5m2, f32, kSm90GemvFew, false),
    family(Arch::sm90a, e5m2, e4m3, f32, kSm90GemvFew, false),
    family(Arch::sm90a, e5m2, e5m2, f32, kSm90GemvFew, false),
    family(Arch::sm90a, s8, s8, s32, kSm90Gemv, false),
    family(Arch::sm90a, s8, u8, s32, kSm90GemvFew, false),
    family(Arch::sm90a, u8, s8, s32, kSm90GemvFew, false),
    family(Arch::sm90a, u8, u8, s32, kSm90GemvFew, false),
    family(Arch::sm90a, f64, f64, f64, kSm90GemvF64, false),
    family(Arch::sm90a, f32, f32, f64, kSm90GemvF64, false),
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
    family(Arch::sm80, f64, f64, f64, kSm80F64, true),
    family(Arch::sm80, s4, s4, s32, kSm80Few, false),
    family(Arch::sm80, s4, u4, s32, kSm80Few, false),
    family(Arch::sm80, u4, s4, s32, kSm80Few, false),
    family(Arch::sm80, u4, u4, s32, kSm80Few, false),
    family(Arch::sm80, b1, b1, s32, kSm80Few, false),
    family(Arch::sm90a, b1, b1, s32, kSm90Few, false),
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

static_assert(
    [] {
      for (const GemmConfig& config : kCatalog)
        if (config.split_n && config.uses_tma()) return false;
      return true;
    }(),
    "only the kernels that accumulate in f64 split the columns of a tile");

// The compilation unit of a row: a file of that name in kernels/{sm80,sm90}/instances/.
enum class Unit : std::uint8_t {
  none,
  sm80_bf16,
  sm80_bf16_sparse,
  sm80_f16,
  sm80_f16_sparse,
  sm80_fp8,
  sm80_int8,
  sm80_int8_sparse,
  sm80_tf32,
  sm80_tf32_sparse,
  sm90_bf16,
  sm90_bf16_sparse,
  sm90_f16,
  sm90_f16_sparse,
  sm90_fp32,
  sm90_fp64,
  sm90_fp8,
  sm90_fp8_promoted,
  sm90_fp8_sparse,
  sm90_gemv,
  sm90_int8,
  sm90_int8_rs,
  sm90_int8_sparse,
  sm90_split_fp32_bf16,
  sm90_split_fp32_f16,
  sm90_tf32,
  sm90_tf32_rs,
  sm90_tf32_sparse,
  sm80_fp64,
  sm80_int4,
  sm80_binary,
  sm90_binary,
};

inline constexpr int kUnits = int(Unit::sm90_binary) + 1;

constexpr Unit unit_sm80(const GemmConfig& config) {
  using enum Unit;
  switch (config.input) {
    case DType::bf16:
      return config.sparse ? sm80_bf16_sparse : sm80_bf16;
    case DType::f16:
      return config.sparse ? sm80_f16_sparse : sm80_f16;
    case DType::tf32:
      return config.sparse ? sm80_tf32_sparse : sm80_tf32;
    case DType::s8:
    case DType::u8:
      return config.sparse ? sm80_int8_sparse : sm80_int8;
    case DType::e4m3:
    case DType::e5m2:
      return config.sparse ? none : sm80_fp8;
    case DType::f64:
      return sm80_fp64;
    case DType::s4:
    case DType::u4:
      return sm80_int4;
    case DType::b1:
      return sm80_binary;
    default:
      return none;
  }
}

constexpr Unit unit_sm90(const GemmConfig& config) {
  using enum Unit;
  if (config.is_gemv()) return sm90_gemv;
  const bool rs = config.operand_source == OperandSource::RS;
  switch (config.input) {
    case DType::bf16:
      if (config.terms > 1) return sm90_split_fp32_bf16;
      return config.sparse ? sm90_bf16_sparse : sm90_bf16;
    case DType::f16:
      if (config.terms > 1) return sm90_split_fp32_f16;
      return config.sparse ? sm90_f16_sparse : sm90_f16;
    case DType::tf32:
      return config.sparse ? sm90_tf32_sparse : rs ? sm90_tf32_rs : sm90_tf32;
    case DType::s8:
    case DType::u8:
      return config.sparse ? sm90_int8_sparse : rs ? sm90_int8_rs : sm90_int8;
    case DType::e4m3:
    case DType::e5m2:
      return config.sparse ? sm90_fp8_sparse : config.promotes() ? sm90_fp8_promoted : sm90_fp8;
    case DType::f64:
      return sm90_fp64;
    case DType::f32:
      return sm90_fp32;
    case DType::b1:
      return sm90_binary;
    default:
      return none;
  }
}

constexpr Unit unit(const GemmConfig& config) {
  return config.arch == Arch::sm90a ? unit_sm90(config) : unit_sm80(config);
}

static_assert(
    [] {
      for (const GemmConfig& config : kCatalog)
        if (unit(config) == Unit::none) return false;
      return true;
    }(),
    "every row of the catalog is compiled by one file");

// The name of a row, for people and for filters: sm90a_bf16_f32_128x256x64_w2_s4_tn. Mixed operands
// are e4m3xe5m2. The end names the mainloop features: _promoted, _block_scaled, _rs, _f16x2,
// _bf16x3, _sparse, _pingpong, _gemv.
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
  if (config.operand_source == OperandSource::RS) result.add("_rs");
  if (config.sparse) result.add("_sparse");
  if (config.pingpong) result.add("_pingpong");
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
// Is the code of the row in this build? TCGEMM_KERNELS and TCGEMM_ARCHES select it; code_on says
// which GPUs run it.
constexpr bool built(const GemmConfig& config) {
  return compiled(config.arch) && matches(name(config), TCGEMM_KERNELS);
}

}  // namespace tcgemm
