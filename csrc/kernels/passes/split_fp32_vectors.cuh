// The words that a thread holds of an f32 operand: where they come from, and their parts, which lie
// the same way in every part.
//
//   K-major    a word every `team` words of a row
//   MN-major   a word of every 256 / (words of a line) lines
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/passes/split_fp32_shape.cuh"
#include "ptx/convert.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/load.cuh"

namespace tcgemm::passes {

using HeldWords = std::uint32_t[kHeldWords][kWordElements];

// A thread's words, `step` bytes apart: the first `whole` of them exist, of those up to `total`
// only `tail` elements do.
struct Reads {
  const char* from;
  std::int64_t step;
  int whole, total, tail;
  bool aligned;          // words are read as such
  std::int64_t element;  // elsewhere an element at a time, this many bytes apart
};

// Their place in the first part. Words are written whole: the pitch of parts has room.
struct Writes {
  char* to;
  std::int64_t step;
  int total;
};

// Where a thread's words of row `index` of all batches lie, for a team of 2^size threads. As few
// registers as will do: pointers are made where they are used.
struct RowWords {
  int batch = 0, row;  // not there: row < 0
  int word;            // the first one
  int size;

  __device__ RowWords(const SplitFp32Operand& operand, std::int64_t index, int size, int round)
      : size(size) {
    if (operand.batch > 1) batch = static_cast<int>(quotient(index, operand.rows));
    const std::int64_t left = batch > 0 ? index - batch * operand.rows : index;
    row = batch < operand.batch && left < operand.rows ? static_cast<int>(left) : -1;
    word = (threadIdx.x & ((1 << size) - 1)) + (round << (size + kLogHeld));
  }

  __device__ int first(int round) const { return word + (round << (size + kLogHeld)); }
  __device__ int count(int words, int round) const {
    return row < 0 ? 0 : (words - first(round) + (1 << size) - 1) >> size;
  }

  __device__ Reads reads(const SplitFp32Operand& operand, int round) const {
    const TensorRef& source = operand.source;
    const int k = static_cast<int>(operand.k), tail = k & (kWordElements - 1);
    const std::int64_t element = 4 * source.stride_col;
    const std::int64_t x = row * source.stride_row + (batch > 0 ? batch * source.stride_batch : 0);
    return {static_cast<const char*>(source.data) + 4 * x +
                (std::int64_t(first(round)) << kLogWord) * element,
            element << (kLogWord + size),
            count(k >> kLogWord, round),
            count(words_of(k), round),
            tail,
            source.vector,
            element};
  }

  __device__ Writes writes(const SplitFp32Operand& operand, int round) const {
    const std::int64_t line = batch > 0 ? batch * operand.rows + row : row;
    const std::int64_t part = line * operand.pitch + (std::int64_t(first(round)) << kLogWord);
    return {static_cast<char*>(operand.terms) + 2 * part, 2 << (kLogWord + size),
            count(words_of(operand.k), round)};
  }
};

// Of four columns of lines `begin` to `end` of k, for a block that has 2^size words of each line.
struct ColumnWords {
  int batch, column;
  int line, count;  // the first one; how many of every 2^step-th
  int step;

  __device__ ColumnWords(int batch, int first, int begin, int end, int size) : batch(batch) {
    step = kLogBlock - size;
    column = first + ((threadIdx.x & ((1 << size) - 1)) << kLogWord);
    line = begin + (threadIdx.x >> size);
    count = max(end - line + (1 << step) - 1, 0) >> step;
  }

  __device__ std::int64_t first(int round) const {
    return line + (std::int64_t(round) << (step + kLogHeld));
  }
  __device__ int left(int round) const { return count - (round << kLogHeld); }

  __device__ Reads reads(const SplitFp32Operand& operand, int round) const {
    const TensorRef& source = operand.source;
    const std::int64_t x = first(round) * source.stride_col + column * source.stride_row +
                           (batch > 0 ? batch * source.stride_batch : 0);
    const int tail = static_cast<int>(operand.rows) - column;
    return {static_cast<const char*>(source.data) + 4 * x,
            source.stride_col << (2 + step),
            tail >= kWordElements ? left(round) : 0,
            tail > 0 ? left(round) : 0,
            tail,
            source.vector_column,
            4 * source.stride_row};
  }

  __device__ Writes writes(const SplitFp32Operand& operand, int round) const {
    const std::int64_t line = first(round) + (batch > 0 ? batch * operand.k : 0);
    const std::int64_t part = line * operand.pitch + column;
    return {static_cast<char*>(operand.terms) + 2 * part, operand.pitch << (1 + step),
            column < operand.rows ? left(round) : 0};
  }
};

__device__ inline void read_elements(const Reads& words, HeldWords& x) {
  const char* from = words.from;
#pragma unroll
  for (int i = 0; i < kHeldWords; ++i) {
    const int count = i < words.whole ? kWordElements : i < words.total ? words.tail : 0;
#pragma unroll
    for (int j = 0; j < kWordElements; ++j) {
      const float* element = reinterpret_cast<const float*>(from + j * words.element);
      x[i][j] = j < count ? __float_as_uint(ptx::load(element)) : 0;
    }
    from += words.step;
    ptx::hide_origin(from);
  }
}

// Elements that do not exist are zero.
__device__ inline void read(const Reads& words, std::uint64_t policy, HeldWords& x) {
  if (!words.aligned) {
    read_elements(words, x);
    return;
  }
  const char* from = words.from;
#pragma unroll
  for (int i = 0; i < kHeldWords; ++i) {
    uint4 word{};
    if (i < words.whole) word = ptx::load(from, policy);
    x[i][0] = word.x, x[i][1] = word.y, x[i][2] = word.z, x[i][3] = word.w;
    from += words.step;
    ptx::hide_origin(from);
  }
  if (words.whole >= words.total) return;
  from = words.from;
#pragma unroll
  for (int i = 0; i < kHeldWords; ++i) {
    if (i >= words.whole && i < words.total)
#pragma unroll
      for (int j = 0; j < kWordElements - 1; ++j)
        if (j < words.tail) x[i][j] = reinterpret_cast<const std::uint32_t*>(from)[j];
    from += words.step;
    ptx::hide_origin(from);
  }
}

// Two scaled elements -> two of each part, as words.
template <int kTerms>
__device__ inline void split_pair(float x, float y, std::uint32_t (&terms)[kTerms]) {
  constexpr DType kType = kTerms == kF16Terms ? DType::f16 : DType::bf16;
  terms[0] = ptx::pack<kType>(x, y);
#pragma unroll
  for (int i = 1; i < kTerms; ++i) {
    const float2 part =
        kTerms == kF16Terms ? ptx::unpack_f16(terms[i - 1]) : ptx::unpack_bf16(terms[i - 1]);
    x = __fsub_rn(x, part.x);
    y = __fsub_rn(y, part.y);
    if constexpr (kTerms == kF16Terms) {
      x *= 1 << kLowShift;
      y *= 1 << kLowShift;
    }
    terms[i] = ptx::pack<kType>(x, y);
  }
}

// Parts of the words of one row, or of four columns. Rows far below 1 are scaled twice, as their
// factor is no f32; the others' factors are normal numbers.
template <int kTerms, int kRows>
__device__ inline void write(const Writes& words, HeldWords& x, const Range (&ranges)[kRows],
                             int top, std::int64_t distance) {
  constexpr int kLargest = 127, kFirst = 90;
  float factors[kRows];
  bool plain = true;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int exponent = top - high(ranges[i]);
    factors[i] = ptx::power_of_two(exponent);
    plain = plain && exponent <= kLargest && spread(ranges[i]) != kNotFinite;
  }
  if (!plain) {
#pragma unroll
    for (int j = 0; j < kWordElements; ++j) {
      const Range range = ranges[j % kRows];
      const int exponent = top - high(range);
      const bool finite = spread(range) != kNotFinite, twice = exponent > kLargest;
      if (twice) factors[j % kRows] = ptx::power_of_two(exponent - kFirst);
      const float first = twice ? ptx::power_of_two(kFirst) : 1;
#pragma unroll
      for (int i = 0; i < kHeldWords; ++i)
        x[i][j] = finite ? __float_as_uint(__uint_as_float(x[i][j]) * first) : 0;
    }
  }
  char* to = words.to;
#pragma unroll
  for (int i = 0; i < kHeldWords; ++i) {
    std::uint32_t terms[2][kTerms];
#pragma unroll
    for (int j = 0; j < 2; ++j)
      split_pair<kTerms>(__fmul_rn(__uint_as_float(x[i][2 * j]), factors[2 * j % kRows]),
                         __fmul_rn(__uint_as_float(x[i][2 * j + 1]), factors[(2 * j + 1) % kRows]),
                         terms[j]);
    if (i < words.total) {
      char* part = to;
#pragma unroll
      for (int j = 0; j < kTerms; ++j, part += 2 * distance)
        *reinterpret_cast<uint2*>(part) = {terms[0][j], terms[1][j]};
    }
    to += words.step;
  }
}

}  // namespace tcgemm::passes
