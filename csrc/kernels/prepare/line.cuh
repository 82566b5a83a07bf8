// Lines of elements, any strides, read in chunks of 16 bytes. Where the elements of a line lie side
// by side, beginning at any byte:
//
//              chunk 0         chunk 1         chunk 2
//            |---------------|---------------|---------------|   `start` is where chunk 0 begins
//                 begin >xxxxxxxxxxxxxxxxxxxxxxxxxxx< end        bytes that exist
//      |               |               |               |         words: aligned, at most 2 a chunk
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
  int begin, end;

  __device__ unsigned shift() const { return reinterpret_cast<std::uintptr_t>(start) % kChunk; }

  // Is chunk `index` whole, and are its words inside the line?
  __device__ bool inside(int index) const {
    const int word = index * kChunk - static_cast<int>(shift());
    return word >= begin && word + (shift() == 0 ? kChunk : 2 * kChunk) <= end;
  }
};

// What a chunk is cut out of; the second word lies inside the line if the first one is not enough.
struct Words {
  uint4 low, high;

  __device__ Words() : low{}, high{} {}
  __device__ Words(const Line& line, int index, std::uint64_t policy) : Words() {
    const char* words = line.start - line.shift() + index * kChunk;
    low = ptx::load(words, policy);
    if (line.shift() != 0) high = ptx::load(words + kChunk, policy);
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

// The same for a chunk. Small elements come a word at a time: all of their addresses at once would
// take half of the registers.
template <int kSize>
__device__ inline uint4 gather(const char* address, std::int64_t stride, int first, int last) {
  constexpr int kElements = 4 / kSize;  // of a word
  std::uint32_t x[4] = {};
  if constexpr (kSize >= 4) {
    gather<kSize>(address, stride, first, last, x);
  } else {
#pragma unroll 1
    for (int i = 0; i < 4; ++i, address += kElements * stride) {
      std::uint32_t word[1];
      gather<kSize>(address, stride, first - i * kElements, last - i * kElements, word);
      x[0] = x[1], x[1] = x[2], x[2] = x[3], x[3] = word[0];
    }
  }
  return {x[0], x[1], x[2], x[3]};
}

inline constexpr int kThreadLines = 4;  // that a thread reads at once

// Lines of kSize-byte elements, a stride apart; or, kPiece bytes each, pieces of one line.
template <int kSize, int kPiece = 0>
struct Lines {
  const char* source;
  std::int64_t stride_line, stride_element;  // bytes
  int lines;
  int begin, end;   // of each line, or of the one: bytes from `source` if elements were neighbours
  bool contiguous;  // the elements of a line are neighbours
  bool aligned;     // and the chunks words
  bool inside;      // all lines exist, and the words of all chunks are inside them

  // Fills in these three, where `count` lines or pieces of `length` bytes are to be read.
  __device__ void examine(int count, int length) {
    const auto address = reinterpret_cast<std::uintptr_t>(source);
    contiguous = stride_element == kSize;
    aligned = contiguous && (address | (kPiece ? 0 : stride_line)) % kChunk == 0;
    inside = contiguous && lines == count && begin <= (aligned ? 0 : -kChunk) &&
             end >= length + (aligned ? 0 : kChunk);
  }

  // A chunk of lines first to first + 3, zero where there is nothing. The loop over chunks that
  // have to be gathered is rolled: its registers would spill the others.
  __device__ void read(int first, int column, std::uint64_t policy,
                       uint4 (&chunks)[kThreadLines]) const {
    Words words[kThreadLines];
    unsigned found = 0;
    if (inside) {
#pragma unroll
      for (int i = 0; i < kThreadLines; ++i) words[i] = Words(line(first + i), column, policy);
      found = (1u << kThreadLines) - 1;
    } else if (contiguous) {
#pragma unroll
      for (int i = 0; i < kThreadLines; ++i) {
        const Line line = this->line(first + i);
        const bool exists = first + i < lines && column * kChunk < line.end;
        if (exists && !line.inside(column)) continue;
        if (exists) words[i] = Words(line, column, policy);
        found |= 1u << i;
      }
    }
#pragma unroll
    for (int i = 0; i < kThreadLines; ++i)
      chunks[i] = aligned ? words[i].low
                          : words[i].template cut<kSize>(line(kPiece ? 0 : first + i).shift());
    if (found == (1u << kThreadLines) - 1) return;
    const char* address = source + first * stride_line + column * (kChunk / kSize) * stride_element;
#pragma unroll 1
    for (int i = 0; i < kThreadLines; ++i, address += stride_line) {
      uint4 chunk = chunks[0];
      if ((found >> i & 1) == 0) {
        const Line line = this->line(first + i);
        const int left = (line.end - column * kChunk) / kSize;
        const int from = kPiece ? (line.begin - column * kChunk) / kSize : 0;
        chunk = gather<kSize>(address, stride_element, from, first + i < lines ? left : 0);
      }
#pragma unroll
      for (int j = 1; j < kThreadLines; ++j) chunks[j - 1] = chunks[j];
      chunks[kThreadLines - 1] = chunk;
    }
  }

 private:
  // Where pieces are read in words their elements are neighbours.
  __device__ Line line(int index) const {
    return {source + (kPiece ? index * kPiece : index * stride_line), begin - index * kPiece,
            end - index * kPiece};
  }
};

}  // namespace tcgemm::prepare
