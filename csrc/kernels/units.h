// The compilation units of the kernels: instances.cu is compiled once for each. Their sizes balance
// the build: docs/dev/kernels/compile-time.md.
#pragma once

#include <string_view>

#include "catalog.h"

namespace tcgemm::kernels {

// The parts of a unit's name, such as sm90a_dense_bf16_TN_fused; some units lack the last ones.
struct Unit {
  std::string_view arch, mainloop, input{}, variant{}, path{};

  constexpr ConfigName name() const {
    ConfigName result;
    result.add(arch);
    for (std::string_view part : {mainloop, input, variant, path}) {
      if (!part.empty()) result.add("_");
      result.add(part);
    }
    return result;
  }
};

// The types of a class are in one unit.
constexpr std::string_view type_class(DType type) {
  return is_fp8(type) ? "fp8" : is_int8(type) ? "int8" : is_int4(type) ? "int4" : name(type);
}

// The unit of a row's kernel with a path.
constexpr Unit unit(const GemmConfig& config, EpiloguePath path) {
  const bool is_hopper = config.arch == Arch::sm90a, packed = config.has_packed_weight();
  const bool promotes = config.promotes() && !is_hopper;  // the same header as dense
  Unit result{name(config.arch), name(promotes ? Mainloop::dense : config.mainloop)};
  if (config.is_gemv() || config.is_thin() || config.is_packed_mma() || (packed && !is_hopper))
    return result;
  result.input = type_class(config.input);
  if (TCGEMM_SAMPLE) return result;  // few kernels: to read the headers takes longer than one
  if (packed) result.variant = config.weight_bits == 4 ? "4" : "8";
  if (packed && config.n > 160) result.path = "wide";
  if (path == EpiloguePath::columns) result.path = "columns";
  if (path == EpiloguePath::slices && config.layout == Layout::TN) result.path = "slices";
  if (config.is_grouped()) {
    result.variant = "grouped";
    result.path = path == EpiloguePath::fused ? "fused" : config.grouped == Axis::k ? "k" : "";
    return result;
  }
  if (config.mainloop != Mainloop::dense || !is_hopper) return result;
  const bool is_16bit = bits(config.input) == 16;
  if (config.input != config.input_b || config.input == DType::e5m2 || config.input == DType::u8)
    result.variant = "mixed";
  else if (config.accumulator == DType::f16)
    result.variant = "f16";
  else if (is_16bit)
    result.variant = name(config.layout);
  // The fused kernels of TN take longest to compile, and the ones with wide tiles half of that.
  const bool splits =
      is_16bit ? result.variant == "TN" : result.input == "fp8" && result.variant == "";
  if (splits && path == EpiloguePath::fused) result.path = config.n > 192 ? "fused_wide" : "fused";
  return result;
}

}  // namespace tcgemm::kernels
