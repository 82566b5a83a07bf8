// Decodes the codes of a packed weight into fragments of a (core/packed_weight.h): 16 rows and 16 of
// k of elements of 16 bits. Rows g and g + 8 of a fragment are rows 2 g and 2 g + 1 of the weight.
#pragma once

#include <cstdint>

#include "core/packed_weight.h"
#include "ptx/decode.cuh"
#include "ptx/shared.cuh"

namespace tcgemm::tile {

// 128 + x of bf16, or 1024 + x of f16, has the bits of x < 128 in its mantissa.
template <DType kType>
inline constexpr std::uint32_t kOffsetBits = kType == DType::bf16 ? 0x43004300u : 0x64006400u;
template <DType kType>
inline constexpr float kOffset = kType == DType::bf16 ? 128.0f : 1024.0f;

// The values of the codes without a scale, which are exact, but those of a table are rounded. The
// codes of int4 minus 8, or minus the point of the row. A fragment's registers i have row i % 2.
template <DType kType, WeightFormat kFormat>
struct Decoder;

template <DType kType>
struct Decoder<kType, WeightFormat::int4> {
  using Pair = ptx::Pair<kType>;
  Pair zeros[2] = {Pair(kOffset<kType> + 8), Pair(kOffset<kType> + 8)};  // of rows 2 g and 2 g + 1

  __device__ explicit Decoder(std::uint32_t) {}
  __device__ void set_points(float2 points) {
    zeros[0] = Pair(kOffset<kType> + points.x);
    zeros[1] = Pair(kOffset<kType> + points.y);
  }

  // Step `step` of the four in `words`.
  __device__ void decode(const uint4 (&words)[1], int step, std::uint32_t (&a)[4]) const {
    const std::uint32_t word = step == 0   ? words[0].x
                               : step == 1 ? words[0].y
                               : step == 2 ? words[0].z
                                           : words[0].w;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pair offset((word >> 4 * i & 0x000f000fu) | kOffsetBits<kType>);
      a[i] = (offset - zeros[i % 2]).bits();
    }
  }
};

template <DType kType>
struct Decoder<kType, WeightFormat::table4> {
  std::uint32_t pairs;  // this lane's words of code_pairs.cuh

  __device__ explicit Decoder(std::uint32_t code_pairs)
      : pairs(code_pairs + threadIdx.x % 32 * 4) {}

  __device__ void decode(const uint4 (&words)[1], int step, std::uint32_t (&a)[4]) const {
    const std::uint32_t word = step == 0   ? words[0].x
                               : step == 1 ? words[0].y
                               : step == 2 ? words[0].z
                                           : words[0].w;
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = ptx::load_shared_b32(pairs + (word >> 8 * i & 0xff) * 128);
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
  __device__ explicit Decoder(std::uint32_t) {}

  // f16: 1024 + (x + 128) - 1152. bf16: 128 + the low 7 bits of x, minus 128 or 256 by its sign.
  __device__ void decode(const uint4 (&words)[2], int step, std::uint32_t (&a)[4]) const {
    using Pair = ptx::Pair<kType>;
    for_each_byte_pair(words, step, [&](int i, std::uint32_t two) {
      if constexpr (kType == DType::f16) {
        const std::uint32_t bytes = __byte_perm(two ^ 0x8080u, 0x6464u, 0x5140);
        a[i] = (Pair(bytes) - Pair(1152.0f)).bits();
      } else {
        const std::uint32_t bytes = __byte_perm(two, 0, 0x4140);
        const Pair low((bytes & 0x007f007fu) | kOffsetBits<kType>);
        const Pair sign((bytes & 0x00800080u) | kOffsetBits<kType>);
        a[i] = (low - sign).bits();
      }
    });
  }
};

template <DType kType>
struct Decoder<kType, WeightFormat::e4m3> {
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

}  // namespace tcgemm::tile
