// The compilation units of the kernels, each a file of that name in {sm80,sm90}/instances/. Their
// sizes balance the build: docs/dev/kernels/compile-time.md.
#pragma once

#include <cstdint>

#include "catalog.h"

namespace tcgemm::kernels {

enum class Unit : std::uint8_t {
  none,
  sm80_bf16,
  sm80_bf16_sparse,
  sm80_binary,
  sm80_f16,
  sm80_f16_sparse,
  sm80_fp64,
  sm80_fp8,
  sm80_int4,
  sm80_int8,
  sm80_int8_sparse,
  sm80_packed,
  sm80_packed_gemv,
  sm80_tf32,
  sm80_tf32_sparse,
  sm90_bf16_nn,
  sm90_bf16_nt,
  sm90_bf16_sparse,
  sm90_bf16_tn,
  sm90_bf16_tn_fused,
  sm90_bf16_tn_fused_wide,
  sm90_bf16_tt,
  sm90_binary,
  sm90_f16_f16,
  sm90_f16_nn,
  sm90_f16_nt,
  sm90_f16_sparse,
  sm90_f16_tn,
  sm90_f16_tn_fused,
  sm90_f16_tn_fused_wide,
  sm90_f16_tt,
  sm90_fp32,
  sm90_fp64,
  sm90_fp8,
  sm90_fp8_block_scaled,
  sm90_fp8_fused,
  sm90_fp8_fused_wide,
  sm90_fp8_mixed,
  sm90_fp8_promoted,
  sm90_fp8_sparse,
  sm90_gemv,
  sm90_int8,
  sm90_int8_mixed,
  sm90_int8_rs,
  sm90_int8_sparse,
  sm90_packed_bf16_4,
  sm90_packed_bf16_8,
  sm90_packed_f16_4,
  sm90_packed_f16_8,
  sm90_packed_gemv,
  sm90_packed_mma,
  sm90_split_fp32_bf16,
  sm90_split_fp32_f16,
  sm90_tf32,
  sm90_tf32_rs,
  sm90_tf32_sparse,
};

inline constexpr int kUnits = int(Unit::sm90_tf32_sparse) + 1;

constexpr Unit unit_sm80(const GemmConfig& config) {
  using enum Unit;
  if (config.has_packed_weight()) return config.is_gemv() ? sm80_packed_gemv : sm80_packed;
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

// The fused kernels of TN take longest to compile, and the kernels of wide tiles half of that.
struct FusedUnits {
  Unit others, fused, fused_wide;

  constexpr Unit of(const GemmConfig& config, EpiloguePath path) const {
    if (path != EpiloguePath::fused) return others;
    return config.n > 144 ? fused_wide : fused;
  }
};

constexpr Unit unit_sm90_16bit(const GemmConfig& config, EpiloguePath path) {
  using enum Unit;
  const bool bf16 = config.input == DType::bf16;
  if (config.has_packed_weight()) {
    if (config.weight_bits == 4) return bf16 ? sm90_packed_bf16_4 : sm90_packed_f16_4;
    return bf16 ? sm90_packed_bf16_8 : sm90_packed_f16_8;
  }
  if (config.terms > 1) return bf16 ? sm90_split_fp32_bf16 : sm90_split_fp32_f16;
  if (config.sparse) return bf16 ? sm90_bf16_sparse : sm90_f16_sparse;
  if (config.accumulator == DType::f16) return sm90_f16_f16;
  switch (config.layout) {
    case Layout::TN:
      return bf16 ? FusedUnits{sm90_bf16_tn, sm90_bf16_tn_fused, sm90_bf16_tn_fused_wide}.of(config,
                                                                                             path)
                  : FusedUnits{sm90_f16_tn, sm90_f16_tn_fused, sm90_f16_tn_fused_wide}.of(config,
                                                                                          path);
    case Layout::NN:
      return bf16 ? sm90_bf16_nn : sm90_f16_nn;
    case Layout::TT:
      return bf16 ? sm90_bf16_tt : sm90_f16_tt;
    case Layout::NT:
      return bf16 ? sm90_bf16_nt : sm90_f16_nt;
  }
  return none;
}

constexpr Unit unit_sm90_8bit(const GemmConfig& config, EpiloguePath path) {
  using enum Unit;
  const bool mixed =
      config.input != config.input_b || config.input == DType::e5m2 || config.input == DType::u8;
  if (config.accumulator == DType::s32) {
    if (config.sparse) return sm90_int8_sparse;
    if (config.operand_source == OperandSource::RS) return sm90_int8_rs;
    return mixed ? sm90_int8_mixed : sm90_int8;
  }
  if (config.sparse) return sm90_fp8_sparse;
  if (config.promotes()) return config.block_scaled ? sm90_fp8_block_scaled : sm90_fp8_promoted;
  return mixed ? sm90_fp8_mixed
               : FusedUnits{sm90_fp8, sm90_fp8_fused, sm90_fp8_fused_wide}.of(config, path);
}

constexpr Unit unit_sm90(const GemmConfig& config, EpiloguePath path) {
  using enum Unit;
  if (config.is_gemv()) return config.has_packed_weight() ? sm90_packed_gemv : sm90_gemv;
  if (config.mma_sync) return sm90_packed_mma;
  switch (config.input) {
    case DType::bf16:
    case DType::f16:
      return unit_sm90_16bit(config, path);
    case DType::s8:
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      return unit_sm90_8bit(config, path);
    case DType::tf32:
      if (config.sparse) return sm90_tf32_sparse;
      return config.operand_source == OperandSource::RS ? sm90_tf32_rs : sm90_tf32;
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

// The unit of a row's kernel with a path.
constexpr Unit unit(const GemmConfig& config, EpiloguePath path) {
  return config.arch == Arch::sm90a ? unit_sm90(config, path) : unit_sm80(config);
}

static_assert(
    [] {
      for (const GemmConfig& config : kCatalog)
        if (unit(config, EpiloguePath::plain) == Unit::none) return false;
      return true;
    }(),
    "every row of the catalog is compiled by one file");

}  // namespace tcgemm::kernels
