// Packing a weight: codes, scales and zero points of each group of a row. The CPU and the GPU share
// this arithmetic, so both have the same bits.
#pragma once

#include <cstdint>

#include "core/integer.h"
#include "core/packed_weight.h"
#include "core/problem.h"

namespace tcgemm {

// How a scale is stored. e8m0 is a power of two, whose byte is its exponent plus 127.
enum class ScaleType : std::uint8_t { f32, f16, bf16, e4m3, e8m0 };

inline constexpr int kScaleTypes = 5;

constexpr const char* name(ScaleType type) {
  constexpr const char* names[kScaleTypes] = {"float32", "float16", "bfloat16", "e4m3", "e8m0"};
  return names[static_cast<int>(type)];
}

// The dtype of the tensor of scales.
constexpr DType stored_dtype(ScaleType type) {
  switch (type) {
    case ScaleType::f32: return DType::f32;
    case ScaleType::f16: return DType::f16;
    case ScaleType::bf16: return DType::bf16;
    case ScaleType::e4m3:
    case ScaleType::e8m0: break;
  }
  return DType::u8;
}

constexpr int scale_bytes(ScaleType type) {
  static_assert(kScaleTypes == 5);
  return type == ScaleType::f32 ? 4 : type == ScaleType::f16 || type == ScaleType::bf16 ? 2 : 1;
}

// The rules of a group:
//
//   scale = amax / limit, or (max - min) / 15 with zero points, where 0 counts as an element
//   code  = the nearest one to w / scale, and the even one of two
//   zero  = the code of 0, with zero points
//
// A scale of 0 becomes 1. One that its type holds as 0 becomes the smallest number, and one that is
// too large or not finite becomes NaN. With `least_error` further scales are tried, as multiples of
// the first; the one with the least squared error is kept, and the earlier one of two.
struct PackRules {
  WeightFormat format = WeightFormat::int4;
  ScaleType scale_type = ScaleType::f32;
  bool zero_points = false;  // of int4
  bool least_error = false;
  float limit = 7.0f;
};

// Packs w (n, k), whose rows have groups of `group` elements; `group` divides k.
struct Packing {
  Matrix w;  // f16, bf16 or f32, any strides
  std::int64_t n = 0, k = 0, group = 0;
  PackRules rules;
  const float* book = nullptr;          // of table4: CodeBook
  const float* global_scale = nullptr;  // that all groups share; null: 1
  std::uint8_t* codes = nullptr;        // (n, row_bytes()), contiguous
  void* scales = nullptr;               // (n, k / group)
  std::uint8_t* zero_points = nullptr;  // the same; null without zero points

  std::int64_t row_bytes() const { return ceil_div(k, 8 / bits(rules.format)); }  // of codes
  std::int64_t groups_in_row() const { return group == 0 ? 0 : k / group; }
};

inline constexpr int kPackElements = 8;  // that a lane packs at a time
inline constexpr int kPackChunks = 2;    // of as many elements, that a lane has of a group
inline constexpr int kMostPackLanes = 32;
inline constexpr int kScaleFactors = 28;
inline constexpr int kPowerFactors = 3;

// The lanes that share a group. Lane i has elements 8 i to 8 i + 7, and those 8 * lanes further.
constexpr int pack_lanes(std::int64_t group) {
  int lanes = 1;
  while (lanes < kMostPackLanes && lanes * kPackChunks * kPackElements < group) lanes *= 2;
  return lanes;
}

namespace packing {

inline constexpr std::uint32_t kInfinity = 0x7f800000u;
inline constexpr int kTableEntries = 16;
inline constexpr float kUnsigned = 15.0f;  // the largest code of int4 with zero points

constexpr std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
constexpr float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: its last bit is worth 1

// Nearest whole number, and the even one of two; |x| < 2^22.
constexpr float nearest(float x) { return (x + kShift) - kShift; }

// A whole number as an integer, |x| < 2^22: the last bits of a sum.
constexpr int whole_number(float x) { return int(bits_of(x + kShift) - bits_of(kShift)); }

constexpr float clamp(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

// The nearest number with fewer bits. Below the smallest normal number an addition rounds: the last
// bit of the sum is worth one subnormal step. Larger numbers than the type has become infinite, and
// NaN becomes 0x7fff: both are more than its largest number.
template <int kExponent, int kMantissa>
constexpr std::uint32_t small_bits(float x) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1, kDropped = 23 - kMantissa;
  constexpr std::uint32_t kSmallestNormal = std::uint32_t(128 - kBias) << 23;
  constexpr std::uint32_t kStep = std::uint32_t(128 - kBias + kDropped) << 23;
  constexpr std::uint32_t kBeyond = ((1u << kExponent) - 1) << kMantissa;
  const std::uint32_t sign = bits_of(x) >> 31 << (kExponent + kMantissa);
  const std::uint32_t magnitude = bits_of(x) & 0x7fffffffu;
  if (magnitude > kInfinity) return sign | (kBeyond + 1);
  if (magnitude < kSmallestNormal)
    return sign | (bits_of(float_of(magnitude) + float_of(kStep)) - kStep);
  const std::uint32_t even = magnitude >> kDropped & 1;
  const std::uint32_t rounded = (magnitude + (1u << (kDropped - 1)) - 1 + even) >> kDropped;
  const std::uint32_t moved = rounded - (std::uint32_t(127 - kBias) << kMantissa);
  return sign | (moved < kBeyond ? moved : kBeyond);
}

// The inverse for finite numbers.
template <int kExponent, int kMantissa>
constexpr float small_value(std::uint32_t bits) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  const std::uint32_t magnitude = bits & ((1u << (kExponent + kMantissa)) - 1);
  const float value =
      float_of(magnitude << (23 - kMantissa)) * float_of(std::uint32_t(254 - kBias) << 23);
  return bits >> (kExponent + kMantissa) & 1 ? -value : value;
}

// e4m3 has no infinity: its bits mean 256 to 448.
constexpr std::uint32_t e4m3_bits(float x) {
  constexpr float kLargest = 448.0f;
  const std::uint32_t sign = bits_of(x) >> 31 << 7;
  const float magnitude = float_of(bits_of(x) & 0x7fffffffu);
  // Numbers from 256 on have steps of 32.
  if (magnitude >= 256.0f)
    return sign |
           (0x78u + std::uint32_t(nearest((clamp(magnitude, 0.0f, kLargest) - 256.0f) / 32.0f)));
  return sign | small_bits<4, 3>(magnitude);
}

constexpr float e4m3_value(std::uint32_t bits) { return small_value<4, 3>(bits); }

}  // namespace packing

// The 16 values of table4 in ascending order. `boundaries` has the largest numbers that are rounded
// to each of them, and infinities after the last one. In memory: boundaries, values, codes.
class CodeBook {
 public:
  constexpr explicit CodeBook(const float* memory) : boundaries_(memory) {}

  constexpr int position(float x) const {
    int index = 0;
    for (int i = 0; i + 1 < packing::kTableEntries; ++i) index += x > boundaries_[i];
    return index;
  }
  constexpr float value(int position) const {
    return boundaries_[packing::kTableEntries + position];
  }
  constexpr int code(int position) const {
    return int(boundaries_[2 * packing::kTableEntries + position]);
  }

 private:
  const float* boundaries_;
};

// The elements of a group, as far as its scale depends on them.
struct GroupRange {
  std::uint32_t amax = 0;  // the bits of the largest |w|; more than infinity with a NaN
  float low = 0.0f, high = 0.0f;

  // `low` and `high` are for zero points alone.
  template <bool kPoints>
  constexpr void add(float x) {
    const std::uint32_t magnitude = packing::bits_of(x) & 0x7fffffffu;
    amax = magnitude > amax ? magnitude : amax;
    if constexpr (!kPoints) return;
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  constexpr void add(const GroupRange& other) {
    amax = other.amax > amax ? other.amax : amax;
    low = other.low < low ? other.low : low;
    high = other.high > high ? other.high : high;
  }
};

// A scale as it is stored, the number that elements are divided by, and the zero point.
struct GroupScale {
  std::uint32_t bits = 0;
  float divisor = 1.0f;
  float zero = 0.0f;
};

// One element: the code, and the number that it stands for before the scale.
struct ElementCode {
  int code;
  float value;
};

class Packer {
 public:
  constexpr Packer(const PackRules& rules, CodeBook book, float global_scale)
      : rules_(rules), book_(book), global_scale_(global_scale) {}

  constexpr int factors() const {
    if (!rules_.least_error) return 1;
    return rules_.scale_type == ScaleType::e8m0 ? kPowerFactors : kScaleFactors;
  }

  // Number `index` of the multiples of the first scale: 1, and then 1.08 to 0.54 but 1. Powers of
  // two have the multiples 1, 2 and 1/2.
  constexpr float factor(int index) const {
    if (rules_.scale_type == ScaleType::e8m0) return index == 0 ? 1.0f : index == 1 ? 2.0f : 0.5f;
    const int step = index < 5 ? 55 - index : 54 - index;
    return index == 0 ? 1.0f : float(step / 50.0);
  }

  constexpr GroupScale scale(const GroupRange& range, float factor) const {
    const float amax = packing::float_of(range.amax);
    const float wide =
        rules_.zero_points ? (range.high - range.low) / packing::kUnsigned : amax / rules_.limit;
    const float step = range.amax < packing::kInfinity ? wide * factor : amax;
    GroupScale scale;
    scale.bits = stored(step == 0.0f ? 1.0f : step);
    scale.divisor = value(scale.bits) * global_scale_;
    if (rules_.zero_points && scale.divisor > 0.0f)
      scale.zero = packing::nearest(
          packing::clamp(-range.low * factor / scale.divisor, 0.0f, packing::kUnsigned));
    return scale;
  }

  // The code of an element from its quotient, x / scale.divisor. kFormat and kPoints
  // belong to the rules.
  template <WeightFormat kFormat, bool kPoints>
  constexpr ElementCode code(float quotient, const GroupScale& scale) const {
    using namespace packing;
    if (!(quotient == quotient)) quotient = 0.0f;
    if constexpr (kFormat == WeightFormat::table4) {
      const int position = book_.position(quotient);
      return {book_.code(position), book_.value(position)};
    } else if constexpr (kFormat == WeightFormat::e4m3) {
      const std::uint32_t bits = e4m3_bits(quotient);
      return {int(bits), e4m3_value(bits)};
    } else if constexpr (kPoints) {
      static_assert(kFormat == WeightFormat::int4);
      const float whole = nearest(clamp(quotient, -16.0f, 16.0f)) + scale.zero;
      const float code = clamp(whole, 0.0f, kUnsigned);
      return {whole_number(code), code - scale.zero};
    } else {
      static_assert(kFormat == WeightFormat::int4);
      const float code = nearest(clamp(quotient, -rules_.limit - 1, rules_.limit));
      return {whole_number(code), code};
    }
  }

  // The squared error of an element x. Each step but the last is exact or rounded once, so that
  // whether a compiler fuses a product and a sum changes nothing.
  template <WeightFormat kFormat, bool kPoints>
  constexpr double error(float x, float quotient, const GroupScale& scale) const {
    const double value = code<kFormat, kPoints>(quotient, scale).value;
    const float difference = float(value * double(scale.divisor) - double(x));
    return double(difference) * double(difference);
  }

 private:
  constexpr std::uint32_t stored(float scale) const {
    static_assert(kScaleTypes == 5);
    const bool finite = scale < packing::float_of(packing::kInfinity);
    if (rules_.scale_type == ScaleType::e8m0) return finite ? packing::bits_of(scale) >> 23 : 255u;
    scale = scale / global_scale_;
    switch (rules_.scale_type) {
      case ScaleType::f16: return usable(packing::small_bits<5, 10>(scale), 0x7c00u, 0x7e00u);
      case ScaleType::bf16: return usable(packing::small_bits<8, 7>(scale), 0x7f80u, 0x7fc0u);
      case ScaleType::e4m3: return finite ? usable(packing::e4m3_bits(scale), 0x7fu, 0x7fu) : 0x7fu;
      default: return usable(packing::bits_of(scale), packing::kInfinity, 0x7fc00000u);
    }
  }

  // A positive scale, or NaN.
  static constexpr std::uint32_t usable(std::uint32_t bits, std::uint32_t infinity,
                                        std::uint32_t nan) {
    return bits >= infinity ? nan : bits == 0 ? 1u : bits;
  }

  constexpr float value(std::uint32_t bits) const {
    static_assert(kScaleTypes == 5);
    constexpr std::uint32_t kNan = 0x7fc00000u;
    switch (rules_.scale_type) {
      case ScaleType::f16:
        return bits >= 0x7c00u ? packing::float_of(kNan) : packing::small_value<5, 10>(bits);
      case ScaleType::bf16: return packing::float_of(bits << 16);
      case ScaleType::e4m3:
        return bits == 0x7fu ? packing::float_of(kNan) : packing::e4m3_value(bits);
      case ScaleType::e8m0:
        return packing::float_of(bits == 255u ? kNan : bits == 0u ? 0x00400000u : bits << 23);
      default: return packing::float_of(bits);
    }
  }

  PackRules rules_;
  CodeBook book_;
  float global_scale_;
};

// Calls visit.operator()<format, zero points>() for the rules at run time. int8 is packed as int4.
template <class Visit>
constexpr void for_codes(const PackRules& rules, const Visit& visit) {
  static_assert(kWeightFormats == 5);
  if (rules.format == WeightFormat::table4)
    visit.template operator()<WeightFormat::table4, false>();
  else if (rules.format == WeightFormat::e4m3)
    visit.template operator()<WeightFormat::e4m3, false>();
  else if (rules.zero_points)
    visit.template operator()<WeightFormat::int4, true>();
  else
    visit.template operator()<WeightFormat::int4, false>();
}

// The scale of a group. `error(scale)` is the sum of Packer::error over the group, in the order of
// sum_of_lanes.
template <class Error>
constexpr GroupScale best_scale(const Packer& packer, const GroupRange& range, const Error& error) {
  GroupScale best = packer.scale(range, packer.factor(0));
  if (packer.factors() == 1) return best;
  double least = error(best);
  for (int i = 1; i < packer.factors(); ++i) {
    const GroupScale candidate = packer.scale(range, packer.factor(i));
    const double candidate_error = error(candidate);
    if (candidate_error < least) {
      least = candidate_error;
      best = candidate;
    }
  }
  return best;
}

}  // namespace tcgemm
