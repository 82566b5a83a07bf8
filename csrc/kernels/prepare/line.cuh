// Lines of elements that lie side by side, beginning at any byte, read in chunks of 16 bytes.
//
//              chunk 0         chunk 1         chunk 2
//            |---------------|---------------|---------------|      `start` is where chunk 0 begins
//                 begin >xxxxxxxxxxxxxxxxxxxxxxxxxxx< end           bytes that exist
//      |               |               |               |            words: aligned, at most 2 a
//      chunk
//
// A chunk is cut out of its words where they lie inside the line; elsewhere it is gathered element
// by element, so that nothing beside the operand is read.
#pragma once

#include <cstdint>

#include "ptx/load.cuh"

namespace tcgemm::prepare {

inline constexpr int kChunk = 16;

template <int kSize>
struct Integer;
template <>
struct Integer<1> {
  using Type = std::uint8_t;
};
template <>
struct Integer<2> {
  using Type = std::uint16_t;
};
template <>
struct Integer<4> {
  using Type = std::uint32_t;
};
template <>
struct Integer<8> {
  using Type = std::uint64_t;
};

struct Line {
  const char* start;
  std::int64_t begin, end;

  __device__ unsigned shift() const { return reinterpret_cast<std::uintptr_t>(start) % kChunk; }

  // Is chunk `index` whole, and are its words inside the line?
  __device__ bool inside(std::int64_t index) const {
    const std::int64_t word = index * kChunk - shift();
    return word >= begin && word + (shift() == 0 ? kChunk : 2 * kChunk) <= end;
  }
};

// What a chunk is cut out of; the second word lies inside the line if the first one is not enough.
struct Words {
  uint4 low, high;

  __device__ Words() : low{}, high{} {}
  __device__ Words(const Line& line, std::int64_t index, std::uint64_t policy) : Words() {
    const char* words = line.start - line.shift() + index * kChunk;
    low = ptx::load_once(words, policy);
    if (line.shift() != 0) high = ptx::load_once(words + kChunk, policy);
  }

  // The 16 bytes that begin `shift` bytes, whole elements, into the first word.
  template <int kSize>
  __device__ uint4 cut(unsigned shift) const {
    std::uint32_t x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) x[i] = shift & 8 ? x[i + 2] : x[i];
    if constexpr (kSize <= 4) {
#pragma unroll
      for (int i = 0; i < 5; ++i) x[i] = shift & 4 ? x[i + 1] : x[i];
    }
    if constexpr (kSize <= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = __funnelshift_r(x[i], x[i + 1], shift % 4 * 8);
    }
    return {x[0], x[1], x[2], x[3]};
  }
};

// Elements `first` to `last` of kWords words, `stride` bytes apart; the others are zero.
template <int kSize, int kWords>
__device__ inline void gather(const char* address, std::int64_t stride, int first, int last,
                              std::uint32_t (&words)[kWords]) {
  using Type = typename Integer<kSize>::Type;
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = 0;
#pragma unroll
  for (int i = 0; i < kWords * 4 / kSize; ++i) {
    const bool exists = first <= i && i < last;
    const Type element = exists ? *reinterpret_cast<const Type*>(address + i * stride) : Type{};
    words[i * kSize / 4] |= static_cast<std::uint32_t>(element) << i * kSize % 4 * 8;
    if constexpr (kSize == 8) words[2 * i + 1] = static_cast<std::uint32_t>(element >> 32);
  }
}

// The same for a chunk. Bytes come four at a time: sixteen addresses are half of the registers.
template <int kSize>
__device__ inline uint4 gather(const char* address, std::int64_t stride, int first, int last) {
  std::uint32_t x[4];
  if constexpr (kSize != 1) {
    gather<kSize>(address, stride, first, last, x);
  } else {
#pragma unroll 1
    for (int i = 0; i < 4; ++i, address += 4 * stride, first -= 4, last -= 4) {
      std::uint32_t word[1];
      gather<kSize>(address, stride, first, last, word);
      x[0] = x[1], x[1] = x[2], x[2] = x[3], x[3] = word[0];
    }
  }
  return {x[0], x[1], x[2], x[3]};
}

}  // namespace tcgemm::prepare
