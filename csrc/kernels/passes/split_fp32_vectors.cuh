// The 16-byte vectors of an f32 operand that a thread holds: their addresses, and their terms. Each
// term has the major of the operand. A thread holds one vector
//
//   K-major    of each 2^size vectors of a row, where 2^size threads process a row
//   MN-major   of each 256 / 2^size elements of k, where a strip is 2^size vectors wide
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/passes/split_fp32_shape.cuh"
#include "ptx/convert.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/load.cuh"

namespace tcgemm::passes {

using ThreadVectors = std::uint32_t[kThreadVectors][kVectorElements];

// Loads of a thread's vectors, `step` bytes apart: the first `full` vectors exist whole; of those
// up to `total` only `tail` elements exist.
struct LoadRange {
  const char* from;
  std::int64_t step;
  int full, total, tail;
  bool aligned;          // 16-byte loads are possible
  std::int64_t element;  // else elements are loaded singly, so many bytes apart
};

// Stores to the first term. Whole vectors are stored: the pitch of terms has room for them.
struct StoreRange {
  char* to;
  std::int64_t step;
  int total;
};

// The vectors of row `index` of all batches, for 2^size threads per row. Few members save
// registers: pointers are computed where they are used.
struct RowVectors {
  int batch = 0, row;  // row < 0: it does not exist
  int vector;          // the first vector
  int size;

  __device__ RowVectors(const SplitFp32Operand& operand, std::int64_t index, int size, int round)
      : size(size) {
    if (operand.batch > 1) batch = static_cast<int>(quotient(index, operand.rows));
    const std::int64_t remaining = batch > 0 ? index - batch * operand.rows : index;
    row = batch < operand.batch && remaining < operand.rows ? static_cast<int>(remaining) : -1;
    vector = (threadIdx.x & ((1 << size) - 1)) + (round << (size + kLogThreadVectors));
  }

  __device__ int first(int round) const { return vector + (round << (size + kLogThreadVectors)); }
  __device__ int count(int vectors, int round) const {
    return row < 0 ? 0 : (vectors - first(round) + (1 << size) - 1) >> size;
  }

  __device__ LoadRange loads(const SplitFp32Operand& operand, int round) const {
    const TensorRef& source = operand.source;
    const int k = static_cast<int>(operand.k), tail = k & (kVectorElements - 1);
    const std::int64_t element = 4 * source.stride_col;
    const std::int64_t x = row * source.stride_row + (batch > 0 ? batch * source.stride_batch : 0);
    return {static_cast<const char*>(source.data) + 4 * x +
                (std::int64_t(first(round)) << kLogVectorElements) * element,
            element << (kLogVectorElements + size),
            count(k >> kLogVectorElements, round),
            count(vector_count(k), round),
            tail,
            source.row_vectors,
            element};
  }

  __device__ StoreRange stores(const SplitFp32Operand& operand, int round) const {
    const std::int64_t index = batch > 0 ? batch * operand.rows + row : row;
    const std::int64_t term =
        index * operand.pitch + (std::int64_t(first(round)) << kLogVectorElements);
    return {static_cast<char*>(operand.terms) + 2 * term, 2 << (kLogVectorElements + size),
            count(vector_count(operand.k), round)};
  }
};

// The vectors of four columns, for k from `begin` to `end` - 1, of a CTA with 2^size vectors per
// strip.
struct ColumnVectors {
  int batch, column;
  int k, count;  // the first element of k, and how many there are, 2^step apart
  int step;

  __device__ ColumnVectors(int batch, int first, int begin, int end, int size) : batch(batch) {
    step = kLogSplitThreads - size;
    column = first + ((threadIdx.x & ((1 << size) - 1)) << kLogVectorElements);
    k = begin + (threadIdx.x >> size);
    count = max(end - k + (1 << step) - 1, 0) >> step;
  }

  __device__ std::int64_t first(int round) const {
    return k + (std::int64_t(round) << (step + kLogThreadVectors));
  }
  __device__ int remaining(int round) const { return count - (round << kLogThreadVectors); }

  __device__ LoadRange loads(const SplitFp32Operand& operand, int round) const {
    const TensorRef& source = operand.source;
    const std::int64_t x = first(round) * source.stride_col + column * source.stride_row +
                           (batch > 0 ? batch * source.stride_batch : 0);
    const int tail = static_cast<int>(operand.rows) - column;
    return {static_cast<const char*>(source.data) + 4 * x,
            source.stride_col << (2 + step),
            tail >= kVectorElements ? remaining(round) : 0,
            tail > 0 ? remaining(round) : 0,
            tail,
            source.column_vectors,
            4 * source.stride_row};
  }

  __device__ StoreRange stores(const SplitFp32Operand& operand, int round) const {
    const std::int64_t index = first(round) + (batch > 0 ? batch * operand.k : 0);
    const std::int64_t term = index * operand.pitch + column;
    return {static_cast<char*>(operand.terms) + 2 * term, operand.pitch << (1 + step),
            column < operand.rows ? remaining(round) : 0};
  }
};

__device__ inline void load_elements(const LoadRange& vectors, ThreadVectors& x) {
  const char* from = vectors.from;
#pragma unroll
  for (int i = 0; i < kThreadVectors; ++i) {
    const int count = i < vectors.full ? kVectorElements : i < vectors.total ? vectors.tail : 0;
#pragma unroll
    for (int j = 0; j < kVectorElements; ++j) {
      const float* element = reinterpret_cast<const float*>(from + j * vectors.element);
      x[i][j] = j < count ? __float_as_uint(ptx::load(element)) : 0;
    }
    from += vectors.step;
    ptx::hide_origin(from);
  }
}

// Loads a thread's vectors; elements that do not exist are zero.
__device__ inline void load(const LoadRange& vectors, std::uint64_t policy, ThreadVectors& x) {
  if (!vectors.aligned) {
    load_elements(vectors, x);
    return;
  }
  const char* from = vectors.from;
#pragma unroll
  for (int i = 0; i < kThreadVectors; ++i) {
    uint4 vector{};
    if (i < vectors.full) vector = ptx::load(from, policy);
    x[i][0] = vector.x, x[i][1] = vector.y, x[i][2] = vector.z, x[i][3] = vector.w;
    from += vectors.step;
    ptx::hide_origin(from);
  }
  if (vectors.full >= vectors.total) return;
  from = vectors.from;
#pragma unroll
  for (int i = 0; i < kThreadVectors; ++i) {
    if (i >= vectors.full && i < vectors.total)
#pragma unroll
      for (int j = 0; j < kVectorElements - 1; ++j)
        if (j < vectors.tail) x[i][j] = reinterpret_cast<const std::uint32_t*>(from)[j];
    from += vectors.step;
    ptx::hide_origin(from);
  }
}

// Splits two scaled elements into kTerms pairs.
template <int kTerms>
__device__ inline void split_pair(float x, float y, std::uint32_t (&terms)[kTerms]) {
  static_assert(kTerms == kF16Terms || kTerms == kBf16Terms);
  constexpr DType kType = kTerms == kF16Terms ? DType::f16 : DType::bf16;
  terms[0] = ptx::pack<kType>(x, y);
#pragma unroll
  for (int i = 1; i < kTerms; ++i) {
    const float2 term = ptx::unpack<kType>(terms[i - 1]);
    x = __fsub_rn(x, term.x);
    y = __fsub_rn(y, term.y);
    if constexpr (kTerms == kF16Terms) {
      x *= 1 << kLowShift;
      y *= 1 << kLowShift;
    }
    terms[i] = ptx::pack<kType>(x, y);
  }
}

// Stores the terms of vectors of one row, or of four columns. A row far below 1 is scaled in two
// steps, since its factor exceeds the range of f32. The other factors are normal numbers.
template <int kTerms, int kRows>
__device__ inline void store(const StoreRange& vectors, ThreadVectors& x,
                             const Range (&ranges)[kRows], int top, std::int64_t term_stride) {
  constexpr int kMaxExponent = 127, kFirstExponent = 90;
  float factors[kRows];
  bool one_step = true;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int exponent = top - high(ranges[i]);
    factors[i] = ptx::power_of_two(exponent);
    one_step = one_step && exponent <= kMaxExponent && spread(ranges[i]) != kNotFinite;
  }
  if (!one_step) {
#pragma unroll
    for (int j = 0; j < kVectorElements; ++j) {
      const Range range = ranges[j % kRows];
      const int exponent = top - high(range);
      const bool finite = spread(range) != kNotFinite, twice = exponent > kMaxExponent;
      if (twice) factors[j % kRows] = ptx::power_of_two(exponent - kFirstExponent);
      const float first = twice ? ptx::power_of_two(kFirstExponent) : 1;
#pragma unroll
      for (int i = 0; i < kThreadVectors; ++i)
        x[i][j] = finite ? __float_as_uint(__uint_as_float(x[i][j]) * first) : 0;
    }
  }
  char* to = vectors.to;
#pragma unroll
  for (int i = 0; i < kThreadVectors; ++i) {
    std::uint32_t terms[2][kTerms];
#pragma unroll
    for (int j = 0; j < 2; ++j)
      split_pair<kTerms>(__fmul_rn(__uint_as_float(x[i][2 * j]), factors[2 * j % kRows]),
                         __fmul_rn(__uint_as_float(x[i][2 * j + 1]), factors[(2 * j + 1) % kRows]),
                         terms[j]);
    if (i < vectors.total) {
      char* term = to;
#pragma unroll
      for (int j = 0; j < kTerms; ++j, term += 2 * term_stride)
        *reinterpret_cast<uint2*>(term) = {terms[0][j], terms[1][j]};
    }
    to += vectors.step;
  }
}

}  // namespace tcgemm::passes
