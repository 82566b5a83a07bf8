// 16-bit floats and f32, one value at a time, in integer arithmetic: the definition of each
// rounding. The vector versions in vector_*.cpp give the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace tcgemm::cpu {

struct Half {
  std::uint16_t bits;
};

struct BFloat16 {
  std::uint16_t bits;
};

inline constexpr std::uint32_t kNan32 = 0x7fc00000;
inline constexpr std::uint64_t kNan64 = 0x7ff8000000000000;
inline constexpr std::uint16_t kNanHalf = 0x7e00;

inline float widened(float x) { return x; }
inline double widened(double x) { return x; }
inline float widened(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

inline float widened(Half x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
}

inline void narrow(float x, float& out) { out = x == x ? x : std::bit_cast<float>(kNan32); }
inline void narrow(double x, double& out) { out = x == x ? x : std::bit_cast<double>(kNan64); }

inline void narrow(float x, BFloat16& out) {
  const std::uint32_t word =
      std::bit_cast<std::uint32_t>(x == x ? x : std::bit_cast<float>(kNan32));
  out.bits = static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

inline void narrow(float x, Half& out) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = word & 0x7fffffff;
  std::uint32_t half;
  if (magnitude > 0x7f800000) {
    out.bits = kNanHalf;
    return;
  }
  if (magnitude >= 0x477ff000) {  // 65520, halfway to what would be 2^16: Inf
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {
    half = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  } else {  // the spacing of f32 numbers at 0.5 is that of f16 subnormals: the addition rounds
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  }
  out.bits = static_cast<std::uint16_t>((word >> 16 & 0x8000) | half);
}

}  // namespace tcgemm::cpu
