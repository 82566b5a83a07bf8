// Decodes the codes of a packed weight into fragments of a (core/packed_weight.h): 16 rows and 16
// of k of elements of 16 bits. Rows g and g + 8 of a fragment are rows 2 g and 2 g + 1 of the
// weight.
#pragma once

#include <cstdint>

#include "core/packed_weight.h"
#include "core/params.h"
#include "ptx/decode.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::tile {

// kBase + x has the bits of x < 16 in its mantissa: the low four in bf16, and bits 3 to 6 in f16.
inline constexpr float kBase = 128.0f;

// Step `step` of the four in a vector of 4-bit codes.
__device__ inline std::uint32_t word_of(const uint4& words, int step) {
  return step == 0 ? words.x : step == 1 ? words.y : step == 2 ? words.z : words.w;
}

// kBase + the codes of int4, exactly.
template <DType kType>
__device__ inline void decode_above_base(std::uint32_t word, std::uint32_t (&a)[4]) {
  static_assert(kType == DType::bf16 || kType == DType::f16);
  constexpr int kLeft = kType == DType::bf16 ? 0 : 3;
  constexpr std::uint32_t kMask = 0x000f000fu << kLeft;
  constexpr std::uint32_t kBits = kType == DType::bf16 ? 0x43004300u : 0x58005800u;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    a[i] = ptx::and_or(i == 0 ? word << kLeft : word >> (4 * i - kLeft), kMask, kBits);
}

// The values of the codes without a scale, which are exact, but values of a table are rounded. The
// codes of int4 minus 8, or minus the point of the row. A fragment's registers i have row i % 2.
template <DType kType, WeightFormat kFormat>
struct Decoder;

template <DType kType>
struct Decoder<kType, WeightFormat::int4> {
  using Pair = ptx::Pair<kType>;
  Pair zeros[2] = {Pair(kBase + 8), Pair(kBase + 8)};  // of rows 2 g and 2 g + 1

  Decoder() = default;
  __device__ explicit Decoder(std::uint32_t) {}
  __device__ void set_points(float2 points) {
    zeros[0] = Pair(kBase + points.x);
    zeros[1] = Pair(kBase + points.y);
  }

  __device__ void decode(const uint4 (&words)[1], int step, std::uint32_t (&a)[4]) const {
    decode_above_base<kType>(word_of(words[0], step), a);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = (Pair(a[i]) - zeros[i % 2]).bits();
  }
};

template <DType kType>
struct Decoder<kType, WeightFormat::table4> {
  std::uint32_t pairs;  // this lane's words of code_pairs.cuh

  Decoder() = default;
  __device__ explicit Decoder(std::uint32_t code_pairs)
      : pairs(code_pairs + threadIdx.x % 32 * 4) {}

  __device__ void decode(const uint4 (&words)[1], int step, std::uint32_t (&a)[4]) const {
    const std::uint32_t word = word_of(words[0], step);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = ptx::load_shared_b32(pairs + (__byte_perm(word, 0, 0x4440 + i) << 7));
  }
};

// Calls put(register, two bytes) for the registers of a step of 8-bit codes.
template <class Put>
__device__ inline void for_each_byte_pair(const uint4 (&words)[2], int step, const Put& put) {
  const uint4& half = words[step / 2];
  const std::uint32_t first = step % 2 == 0 ? half.x : half.z;
  const std::uint32_t second = step % 2 == 0 ? half.y : half.w;
  put(0, first);
  put(1, first >> 16);
  put(2, second);
  put(3, second >> 16);
}

template <DType kType>
struct Decoder<kType, WeightFormat::int8> {
  Decoder() = default;
  __device__ explicit Decoder(std::uint32_t) {}

  // f16: 1024 + (x + 128) - 1152. bf16: 128 + the low 7 bits of x, minus 128 or 256 by its sign.
  __device__ void decode(const uint4 (&words)[2], int step, std::uint32_t (&a)[4]) const {
    using Pair = ptx::Pair<kType>;
    for_each_byte_pair(words, step, [&](int i, std::uint32_t two) {
      if constexpr (kType == DType::f16) {
        const std::uint32_t bytes = __byte_perm(two ^ 0x8080u, 0x6464u, 0x5140);
        a[i] = (Pair(bytes) - Pair(1152.0f)).bits();
      } else {
        static_assert(kType == DType::bf16);
        const std::uint32_t bytes = __byte_perm(two, 0, 0x4140);
        const Pair low(ptx::and_or(bytes, 0x007f007fu, 0x43004300u));
        const Pair sign(ptx::and_or(bytes, 0x00800080u, 0x43004300u));
        a[i] = (low - sign).bits();
      }
    });
  }
};

template <DType kType>
struct Decoder<kType, WeightFormat::e4m3> {
  Decoder() = default;
  __device__ explicit Decoder(std::uint32_t) {}

  __device__ void decode(const uint4 (&words)[2], int step, std::uint32_t (&a)[4]) const {
    for_each_byte_pair(words, step,
                       [&](int i, std::uint32_t two) { a[i] = ptx::e4m3_pair<kType>(two); });
  }
};

// Calls visit.operator()<format, has a point or an offset for each group>() for the format at run
// time.
template <int kBits, class Visit>
__device__ __forceinline__ void for_format(WeightFormat format, WeightZeros zeros,
                                           const Visit& visit) {
  static_assert(kWeightFormats == 5 && kWeightZeros == 3);
  if constexpr (kBits == 8) {
    if (format == WeightFormat::int8)
      visit.template operator()<WeightFormat::int8, WeightZeros::none>();
    else
      visit.template operator()<WeightFormat::e4m3, WeightZeros::none>();
  } else {
    if (format == WeightFormat::table4)
      visit.template operator()<WeightFormat::table4, WeightZeros::none>();
    else if (zeros == WeightZeros::none)
      visit.template operator()<WeightFormat::int4, WeightZeros::none>();
    else if (zeros == WeightZeros::points)
      visit.template operator()<WeightFormat::int4, WeightZeros::points>();
    else
      visit.template operator()<WeightFormat::int4, WeightZeros::offsets>();
  }
}

// The same with the number of groups in a block of k, which for small groups decides how often
// scales are read: visit.operator()<format, zeros, groups>(). The usual layout comes first, so that
// it takes one branch: a chain of them was a tenth of the time of a k-block.
template <int kBits, class Visit>
__device__ __forceinline__ void for_layout(const PackedParams& packed, const Visit& visit) {
  constexpr WeightFormat kUsual = kBits == 8 ? WeightFormat::int8 : WeightFormat::int4;
  const bool one_group = packed.groups_in_block == 1;
  const bool usual = (packed.format == kUsual) & (packed.zeros == WeightZeros::none) & one_group;
  if (__builtin_expect(usual, true))
    return visit.template operator()<kUsual, WeightZeros::none, 1>();
  for_format<kBits>(packed.format, packed.zeros, [&]<WeightFormat kFormat, WeightZeros kZeros>() {
    if constexpr (kFormat != kUsual || kZeros != WeightZeros::none)
      if (one_group) return visit.template operator()<kFormat, kZeros, 1>();
    if (kFormat != WeightFormat::table4 || packed.groups_in_block == 2)
      visit.template operator()<kFormat, kZeros, 2>();
    else if constexpr (kFormat == WeightFormat::table4)
      visit.template operator()<kFormat, kZeros, 4>();
  });
}

}  // namespace tcgemm::tile
