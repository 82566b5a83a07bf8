// The table of kernels: one row (core/gemm_config.h) per compiled kernel. The instances of kernels,
// the planner, the support table, `tcgemm.info` and the tests read it. To add a kernel, add a row.
#pragma once

#include <array>
#include <cstddef>
#include <span>
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
inline constexpr Layouts kKMajorA = only(Layout::TN) | only(Layout::NN);
inline constexpr Layouts kKMajorB = only(Layout::TN) | only(Layout::TT);

// The types of a product, and the bits of a packed weight.
struct Operands {
  DType a, b, accumulator;
  int weight_bits = 0;
};

using enum Arch;
using enum DType;
using enum Mainloop;
inline constexpr Operands kBf16[] = {{bf16, bf16, f32}};
inline constexpr Operands kF16[] = {{f16, f16, f32}};
inline constexpr Operands kF16Sums[] = {{f16, f16, f16}};
inline constexpr Operands kTf32[] = {{tf32, tf32, f32}};
inline constexpr Operands kE4m3[] = {{e4m3, e4m3, f32}};
inline constexpr Operands kMixedFp8[] = {{e4m3, e5m2, f32}, {e5m2, e4m3, f32}, {e5m2, e5m2, f32}};
inline constexpr Operands kS8[] = {{s8, s8, s32}};
inline constexpr Operands kMixedInt8[] = {{s8, u8, s32}, {u8, s8, s32}, {u8, u8, s32}};
inline constexpr Operands kInt4[] = {{s4, s4, s32}, {s4, u4, s32}, {u4, s4, s32}, {u4, u4, s32}};
inline constexpr Operands kBits[] = {{b1, b1, s32}};
inline constexpr Operands kF64[] = {{f64, f64, f64}};
inline constexpr Operands kF32[] = {{f32, f32, f64}};
inline constexpr Operands kF32Sums[] = {{f32, f32, f32}};
inline constexpr Operands kWeights[] = {
    {bf16, bf16, f32, 4}, {bf16, bf16, f32, 8}, {f16, f16, f32, 4}, {f16, f16, f32, 8}};

// Rows that differ in types, tile and layout alone. wgmma reads 8-bit and tf32 operands K-major
// only, so these have TN rows; the planner repacks other layouts, or takes an RS row (TT). A 2:4
// operand a is K-major.
struct ConfigFamily {
  Arch arch;
  Mainloop mainloop;
  std::span<const Operands> operands;
  std::span<const TileShape> tiles;
  Layouts layouts = only(Layout::TN);
};

inline constexpr ConfigFamily kFamilies[] = {
    {sm90a, dense, kBf16, kSm90, kAll},
    {sm90a, dense, kBf16, kSm90Narrow},
    {sm90a, dense, kBf16, kSm90Wide},
    {sm90a, dense, kBf16, kSm90Columns, kKMajorB},
    {sm90a, dense, kF16, kSm90, kAll},
    {sm90a, dense, kF16, kSm90Narrow},
    {sm90a, dense, kF16, kSm90Wide},
    {sm90a, dense, kF16, kSm90Columns, kKMajorB},
    {sm90a, dense, kF16Sums, kSm90F16, kAll},
    {sm90a, dense, kTf32, kSm90},
    {sm90a, dense, kTf32, kSm90Narrow},
    {sm90a, rs, kTf32, kSm90Rs, only(Layout::TT)},
    {sm90a, dense, kE4m3, kSm90},
    {sm90a, dense, kE4m3, kSm90Narrow},
    {sm90a, dense, kE4m3, kSm90Wide},
    {sm90a, dense, kMixedFp8, kSm90Few},
    {sm90a, promoted, kE4m3, kSm90Promoted},
    {sm90a, promoted, kMixedFp8, kSm90PromotedFew},
    {sm90a, block_scaled, kE4m3, kSm90Promoted},
    {sm90a, block_scaled, kMixedFp8, kSm90PromotedFew},
    {sm90a, dense, kS8, kSm90},
    {sm90a, dense, kS8, kSm90Narrow},
    {sm90a, rs, kS8, kSm90Rs, only(Layout::TT)},
    {sm90a, dense, kMixedInt8, kSm90Few},
    {sm90a, fp64, kF64, kSm90F64, kAll},
    {sm90a, fp64, kF32, kSm90F32, kAll},
    {sm90a, gemv, kBf16, kSm90Gemv},
    {sm90a, gemv, kF16, kSm90Gemv},
    {sm90a, gemv, kTf32, kSm90Gemv},
    {sm90a, gemv, kE4m3, kSm90Gemv},
    {sm90a, gemv, kMixedFp8, kSm90GemvFew},
    {sm90a, gemv, kS8, kSm90Gemv},
    {sm90a, gemv, kMixedInt8, kSm90GemvFew},
    {sm90a, gemv, kF64, kSm90GemvF64},
    {sm90a, gemv, kF32, kSm90GemvF64},
    {sm90a, split_fp32, kF16, kSm90F16x2, kAll},
    {sm90a, split_fp32, kBf16, kSm90Bf16x3, kAll},
    {sm90a, sparse, kBf16, kSm90Sparse, kKMajorA},
    {sm90a, sparse, kF16, kSm90Sparse, kKMajorA},
    {sm90a, sparse, kTf32, kSm90Sparse},
    {sm90a, sparse, kE4m3, kSm90SparseFp8},
    {sm90a, sparse, kMixedFp8, kSm90SparseFew},
    {sm90a, sparse, kS8, kSm90SparseInt8},
    {sm90a, sparse, kMixedInt8, kSm90SparseFew},
    {sm80, dense, kBf16, kSm80, kAll},
    {sm80, dense, kF16, kSm80, kAll},
    {sm80, dense, kF16Sums, kSm80, kAll},
    {sm80, dense, kTf32, kSm80},
    {sm80, dense, kS8, kSm80},
    {sm80, dense, kMixedInt8, kSm80Few},
    {sm80, sparse, kBf16, kSm80Sparse, kKMajorA},
    {sm80, sparse, kF16, kSm80Sparse, kKMajorA},
    {sm80, sparse, kTf32, kSm80Sparse},
    {sm80, sparse, kS8, kSm80Sparse},
    {sm80, sparse, kMixedInt8, kSm80Sparse},
    {sm89, dense, kE4m3, kSm80Few},
    {sm89, dense, kMixedFp8, kSm80Few},
    {sm89, promoted, kE4m3, kSm80Few},
    {sm89, promoted, kMixedFp8, kSm80Few},
    {sm89, block_scaled, kE4m3, kSm80Few},
    {sm89, block_scaled, kMixedFp8, kSm80Few},
    {sm90a, packed, kWeights, kSm90Packed},
    {sm90a, packed_mma, kWeights, kSm90PackedMma},
    {sm90a, packed_gemv, kWeights, kSm90PackedGemv},
    {sm80, fp64, kF64, kSm80F64, kAll},
    {sm80, dense, kInt4, kSm80Few},
    {sm80, dense, kBits, kSm80Few},
    {sm90a, dense, kBits, kSm90Bits},
    {sm80, packed, kWeights, kSm80Packed},
    {sm80, packed_gemv, kWeights, kSm80PackedGemv},
    {sm90a, packed_gemv, kWeights, kSm90PackedGemvClusters},
    {sm90a, thin, kBf16, kSm90Thin},
    {sm90a, thin, kF16, kSm90Thin},
    {sm90a, thin, kF32, kSm90Thin},
    {sm90a, tf32x2, kF32Sums, kSm90Tf32x2, kKMajorB},
    {sm90a, block_scaled, kE4m3, kSm90BlockScaled},
    {sm90a, dense, kBf16, kSm90Grouped, kKMajorA},
    {sm90a, dense, kF16, kSm90Grouped, kKMajorA},
    {sm90a, dense, kTf32, kSm90Grouped},
    {sm90a, dense, kBf16, kSm90GroupedK, only(Layout::TN) | only(Layout::NT)},
    {sm90a, dense, kF16, kSm90GroupedK, only(Layout::TN) | only(Layout::NT)},
    {sm90a, dense, kTf32, kSm90GroupedK},
    {sm80, dense, kBf16, kSm80Grouped, kKMajorA},
    {sm80, dense, kF16, kSm80Grouped, kKMajorA},
    {sm80, dense, kTf32, kSm80Grouped},
    {sm80, fp64, kF64, kSm80GroupedFew},
    {sm80, dense, kBf16, kSm80GroupedK, only(Layout::NT)},
    {sm80, dense, kF16, kSm80GroupedK, only(Layout::NT)},
    {sm80, dense, kBf16, kSm80GroupedKFew},
    {sm80, dense, kF16, kSm80GroupedKFew},
    {sm80, dense, kTf32, kSm80GroupedKFew},
    {sm80, fp64, kF64, kSm80GroupedKFew},
    {sm90a, fp64, kF32, kSm90GroupedF32, only(Layout::TN) | only(Layout::NN)},
    {sm90a, fp64, kF32, kSm90GroupedKF32, only(Layout::TN) | only(Layout::NT)},
    {sm90a, fp64, kF64, kSm90GroupedF64},
    {sm90a, fp64, kF64, kSm90GroupedKF64},
};

// Columns of MN-major b come in boxes of 64.
constexpr bool has(const ConfigFamily& family, const Operands& operands, const TileShape& tile,
                   Layout layout) {
  const bool blocks = family.arch != sm90a || bits(operands.a) != 16 || tile.n >= kBlock ||
                      major_b(layout) == Major::K;
  return blocks && (family.layouts & only(layout)) != 0;
}

// Is it the smallest tile of its kind with these types and this layout? It compiles fastest. Tiles
// of another kind have code of their own.
constexpr bool is_sample(const ConfigFamily& family, const Operands& operands,
                         const TileShape& tile, Layout layout) {
  const auto elements = [&](const TileShape& shape) {
    GemmConfig config{shape, family.arch, family.mainloop};
    config.weight_bits = operands.weight_bits;
    return config.tile_m() * config.tile_n();
  };
  const auto is_alike = [&](const TileShape& other) {
    return other.pingpong == tile.pingpong && other.split_n == tile.split_n &&
           other.columns_only == tile.columns_only && other.grouped == tile.grouped &&
           (other.gemv_ctas > 1) == (tile.gemv_ctas > 1);
  };
  for (const ConfigFamily& other : kFamilies) {
    if (other.arch != family.arch || other.mainloop != family.mainloop ||
        other.operands.data() != family.operands.data())
      continue;
    for (const TileShape& shape : other.tiles)
      if (has(other, operands, shape, layout) && is_alike(shape) &&
          elements(shape) < elements(tile))
        return false;
  }
  return true;
}

constexpr void for_each_row(const auto& use) {
  for (const ConfigFamily& family : kFamilies)
    for (const Operands& operands : family.operands)
      for (const TileShape& tile : family.tiles)
        for (int layout = 0; layout < kLayouts; ++layout)
          if (has(family, operands, tile, Layout(layout)))
            use(family, operands, tile, Layout(layout));
}

inline constexpr std::size_t kRows = [] {
  std::size_t count = 0;
  for_each_row([&](const auto&...) { ++count; });
  return count;
}();

constexpr auto rows() {
  std::array<GemmConfig, kRows> table{};
  std::size_t row = 0;
  for_each_row([&](const ConfigFamily& family, const Operands& operands, const TileShape& tile,
                   Layout layout) {
    table[row++] = {tile,       family.arch,          family.mainloop, operands.a,
                    operands.b, operands.accumulator, layout,          operands.weight_bits};
  });
  return table;
}

inline std::array<bool, kRows> samples() {
  std::array<bool, kRows> table{};
  std::size_t row = 0;
  for_each_row([&](const auto&... parts) { table[row++] = is_sample(parts...); });
  return table;
}

}  // namespace catalog

inline constexpr auto kCatalog = catalog::rows();

static_assert(
    [] {
      for (const GemmConfig& config : kCatalog) {
        const bool is_packed = config.is_packed_mma() || config.mainloop == Mainloop::packed ||
                               config.mainloop == Mainloop::packed_gemv;
        if ((config.pingpong && config.mainloop != Mainloop::dense) ||
            (config.split_n && config.mainloop != Mainloop::fp64) ||
            config.is_gemv() != (config.gemv_rows > 0) || is_packed != config.has_packed_weight())
          return false;
      }
      return true;
    }(),
    "a mainloop has tiles of its own kind");

// The name of a row, for people and for filters: sm90a_bf16_f32_128x256x64_w2_s4_tn. Mixed operands
// are e4m3xe5m2. The end names the mainloop features: _promoted, _block_scaled, _rs, _f16x2,
// _bf16x3, _sparse, _pingpong, _gemv, _thin, _packed4, _packed8, _mma, and _c2 for a cluster of
// two that divides k; then _grouped, or _grouped_k, of grouped products.
struct ConfigName {
  char text[64] = {};
  int length = 0;

  constexpr void append(std::string_view part) {
    for (char letter : part) text[length++] = letter;
  }
  constexpr void append(int number) {
    if (number >= 10) append(number / 10);
    text[length++] = char('0' + number % 10);
  }
  constexpr void add(const auto&... parts) { (append(parts), ...); }
  constexpr operator std::string_view() const { return {text, std::size_t(length)}; }
};

constexpr ConfigName name(const GemmConfig& config) {
  ConfigName result;
  result.add(name(config.arch), "_", name(config.input));
  if (config.input_b != config.input) result.add("x", name(config.input_b));
  result.add("_", name(config.accumulator), "_", config.tile_m(), "x", config.tile_n(), "x",
             config.tile_k(), "_w", config.warpgroups, "_s", config.stages, "_");
  for (char letter : std::string_view(name(config.layout))) result.add(letter == 'T' ? "t" : "n");
  switch (config.mainloop) {
    case Mainloop::dense:
    case Mainloop::fp64:
      if (config.pingpong) result.add("_pingpong");
      if (config.is_grouped()) result.add(config.grouped == Axis::k ? "_grouped_k" : "_grouped");
      break;
    case Mainloop::split_fp32:
      result.add(config.terms() == kF16Terms ? "_f16x2" : "_bf16x3");
      break;
    case Mainloop::packed:
    case Mainloop::packed_mma:
    case Mainloop::packed_gemv:
      result.add("_packed", config.weight_bits);
      if (config.is_packed_mma()) result.add("_mma");
      if (config.gemv_ctas > 1) result.add("_c", config.gemv_ctas);
      if (config.is_gemv()) result.add("_gemv");
      break;
    case Mainloop::rs:
    case Mainloop::promoted:
    case Mainloop::block_scaled:
    case Mainloop::sparse:
    case Mainloop::tf32x2:
    case Mainloop::thin:
    case Mainloop::gemv: result.add("_", name(config.mainloop)); break;
  }
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
constexpr bool selected(const GemmConfig& config) {
  constexpr std::string_view kFilter = TCGEMM_KERNELS;
  return kFilter.empty() || matches(name(config), kFilter);
}

#ifndef TCGEMM_SAMPLE
#define TCGEMM_SAMPLE 0
#endif

// Is the code of the row in this build? TCGEMM_KERNELS and TCGEMM_ARCHES select it; code_on says
// which GPUs run it. With TCGEMM_SAMPLE, only samples have code; the planner still sees every row.
inline bool built(std::size_t row) {
  static const auto samples = catalog::samples();  // compilers would take long
  return compiled(kCatalog[row].arch) && selected(kCatalog[row]) &&
         (!TCGEMM_SAMPLE || samples[row]);
}

}  // namespace tcgemm
