// Arguments and arithmetic of quantize: x ~ values * scale, with one scale for each group of
// elements.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/problem.h"

namespace tcgemm {

// The shape of the scales, and the arithmetic of a group:
//
//   granularity    tensor   row          1x128                 128x128
//   scale shape    ()       (.., M, 1)   (.., M, ceil(K/128))  (.., ceil(M/128), ceil(K/128))
//
//   amax  = the largest |x| of a group
//   scale = max(amax / limit, 2^-126), or 1 if amax is 0, or NaN if an element is NaN or Inf
//   value = x / scale, rounded to nearest even and saturated
//
// Both divisions are IEEE divisions in f32. NaN stays NaN in fp8 and becomes 0 in s8. So a group
// with NaN or Inf is NaN as a whole.
//
// Where the scales are given, they are used as they are. Inf becomes the limit with its sign; for
// s8 this is 127 or -127, never -128. The second result is amax, of the shape of the scales. It is
// the largest finite |x|, and 0 for a group without a finite element.

enum class Granularity : std::uint8_t { tensor, row, block_1x128, block_128x128 };

inline constexpr int kGranularities = 4;

constexpr const char* name(Granularity granularity) {
  switch (granularity) {
    case Granularity::tensor: return "tensor";
    case Granularity::row: return "row";
    case Granularity::block_1x128: return "1x128";
    case Granularity::block_128x128: return "128x128";
  }
  return "";
}

// The largest value of a quantised dtype. The range of s8 is symmetric: -127 to 127.
constexpr float limit(DType type) {
  static_assert(are_all({DType::e4m3, DType::e5m2}, is_fp8));
  return type == DType::e4m3 ? 448.0f : type == DType::e5m2 ? 57344.0f : 127.0f;
}

struct Quantization {
  Matrix x;  // f16, bf16 or f32, any strides
  std::int64_t batch = 1;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::e4m3;  // of `values`: e4m3, e5m2 or s8
  Granularity granularity = Granularity::tensor;
  void* values = nullptr;   // batch x rows x cols, contiguous
  float* scales = nullptr;  // contiguous, shape as in the table above; read if they are given
  float* amax = nullptr;    // a result if the scales are given, else nullptr

  bool given() const { return amax != nullptr; }
};

}  // namespace tcgemm
