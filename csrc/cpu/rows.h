// Rows in memory, any dtype and stride, to and from the accumulator's type; panels made of such
// rows.
//
// Written once, compiled once per instruction set: baseline.cpp, avx2.cpp and avx512.cpp include
// this file after their target pragma, and give it a Machine with the two conversions that need
// one. The anonymous namespace keeps the copies apart: were they one inline function to the linker,
// it could give the baseline the AVX-512 copy.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "cpu/convert.h"

namespace tcgemm::cpu {
namespace {

template <class T>
struct QuadOf {
  typedef T type __attribute__((vector_size(4 * sizeof(T))));
};
template <class T>
using Quad = typename QuadOf<T>::type;
using Words = Quad<std::uint32_t>;

// Four neighbours in memory. Quads go by reference: a vector wider than the target's registers has
// no stable calling convention.
template <class Machine>
struct Four {
  static void load(const float* p, Quad<float>& q) { std::memcpy(&q, p, sizeof q); }
  static void load(const double* p, Quad<double>& q) { std::memcpy(&q, p, sizeof q); }
  static void load(const Half* p, Quad<float>& q) { Machine::widen(p, q); }
  static void load(const BFloat16* p, Quad<float>& q) {
    const Words word = words<std::uint16_t>(p) << 16;
    std::memcpy(&q, &word, sizeof q);
  }
  template <int kMantissaBits, int kBias, bool kInfinities>
  static void load(const Float8<kMantissaBits, kBias, kInfinities>* p, Quad<float>& q) {
    using Format = Float8<kMantissaBits, kBias, kInfinities>;
    q = decoded<Format, Quad<float>>(words<std::uint8_t>(p));
  }
  template <int kDropped>
  static void load(const Rounded<kDropped>* p, Quad<float>& q) {
    q = std::bit_cast<Quad<float>>(rounded<kDropped>(words<std::uint32_t>(p)));
  }
  static void load(const std::int8_t* p, Quad<float>& q) {
    q = __builtin_convertvector(integers(p), Quad<float>);
  }
  static void load(const std::uint8_t* p, Quad<float>& q) {
    q = __builtin_convertvector(integers(p), Quad<float>);
  }

 private:
  template <class Integer>
  static Quad<std::int32_t> integers(const Integer* p) {
    Quad<Integer> narrow;
    std::memcpy(&narrow, p, sizeof narrow);
    return __builtin_convertvector(narrow, Quad<std::int32_t>);
  }
  template <class Bits>
  static Words words(const void* p) {
    Quad<Bits> narrow;
    std::memcpy(&narrow, p, sizeof narrow);
    return __builtin_convertvector(narrow, Words);
  }
};

template <class Machine, class S, class T>
concept LoadsFour = requires(const S* p, Quad<T>& q) { Four<Machine>::load(p, q); };

// f(a value of the type that dtype names).
template <class F>
void visit(DType dtype, F f) {
  switch (dtype) {
    case DType::f16:
      return f(Half{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f32:
      return f(float{});
    case DType::e4m3:
      return f(E4M3{});
    case DType::e5m2:
      return f(E5M2{});
    case DType::s8:
      return f(std::int8_t{});
    case DType::u8:
      return f(std::uint8_t{});
    default:
      return f(double{});
  }
}

// The same for an operand of a product, that may be read rounded.
template <class F>
void visit_operand(DType dtype, DType input, F f) {
  if (dtype == DType::f32 && input == DType::tf32) return f(Tf32{});
  if (dtype == DType::f32 && input == DType::bf16) return f(AsBFloat16{});
  visit(dtype, f);
}

// The compiler makes vectors of neighbours, but for f16, whose conversions branch.
template <class Machine, class T, class S>
void load_row(const S* __restrict p, std::int64_t stride, std::int64_t n, T* __restrict out) {
  std::int64_t i = 0;
  if (stride == 1) {
    if constexpr (!std::is_same_v<S, Half>) {
      for (; i < n; ++i) out[i] = static_cast<T>(widened(p[i]));
    } else if constexpr (std::is_same_v<T, float>) {
      for (; i + 4 <= n; i += 4) {
        Quad<float> q;
        Machine::widen(p + i, q);
        std::memcpy(out + i, &q, sizeof q);
      }
    }
  }
  for (; i < n; ++i) out[i] = static_cast<T>(widened(p[i * stride]));
}

template <class Machine, class T, class S>
void store_row(const T* __restrict values, std::int64_t n, S* __restrict p, std::int64_t stride) {
  std::int64_t i = 0;
  if (stride == 1) {
    if constexpr (!std::is_same_v<S, Half>) {
      for (; i < n; ++i) narrow(values[i], p[i]);
    } else if constexpr (std::is_same_v<T, float>) {
      for (; i + 4 <= n; i += 4) {
        Quad<float> q;
        std::memcpy(&q, values + i, sizeof q);
        q = q == q ? q : Quad<float>{} + std::bit_cast<float>(kNan32);
        Machine::narrow(q, p + i);
      }
    }
  }
  for (; i < n; ++i) narrow(values[i], p[i * stride]);
}

// 4 x 4 elements, rows p + i * stride_row, to columns out + k * pitch.
template <class Machine, class T, class S>
void transpose_four(const S* p, std::int64_t stride_row, T* out, std::int64_t pitch) {
  Quad<T> r0, r1, r2, r3;
  Four<Machine>::load(p, r0);
  Four<Machine>::load(p + stride_row, r1);
  Four<Machine>::load(p + 2 * stride_row, r2);
  Four<Machine>::load(p + 3 * stride_row, r3);
  const Quad<T> low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
  const Quad<T> low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  const Quad<T> high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const Quad<T> high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  const Quad<T> column0 = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  const Quad<T> column1 = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  const Quad<T> column2 = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  const Quad<T> column3 = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
  std::memcpy(out, &column0, sizeof column0);
  std::memcpy(out + pitch, &column1, sizeof column1);
  std::memcpy(out + 2 * pitch, &column2, sizeof column2);
  std::memcpy(out + 3 * pitch, &column3, sizeof column3);
}

// Steps of k that are fetched early: they lie on other pages, which no hardware prefetcher
// foresees. Read from memory once, as in a product with one row, f16 takes a third of the time
// then.
inline constexpr std::int64_t kAhead = 8;

// Rows that lie side by side: memory is read from end to end, so k is the outer loop.
template <class Machine, class T, class S>
void pack_columns(const S* p, std::int64_t stride_k, std::int64_t rows, std::int64_t depth,
                  int width, T* panels) {
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t row = 0; row < rows; row += width) {
      const std::int64_t count = rows - row < width ? rows - row : width;
      const S* here = p + k * stride_k + row;
      __builtin_prefetch(here + kAhead * stride_k);
      __builtin_prefetch(here + kAhead * stride_k + count - 1);
      load_row<Machine>(here, 1, count, panels + row * depth + k * width);
    }
  }
}

// Any other strides, one panel: rows <= width.
template <class Machine, class T, class S>
void pack_panel(const S* p, std::int64_t stride_row, std::int64_t stride_k, std::int64_t rows,
                std::int64_t depth, int width, T* panel) {
  std::int64_t row = 0;
  if constexpr (LoadsFour<Machine, S, T>) {
    for (; stride_k == 1 && row + 4 <= rows; row += 4) {
      const S* four = p + row * stride_row;
      std::int64_t k = 0;
      for (; k + 4 <= depth; k += 4) {
        transpose_four<Machine>(four + k, stride_row, panel + k * width + row, width);
      }
      for (; k < depth; ++k) {
        load_row<Machine>(four + k, stride_row, 4, panel + k * width + row);
      }
    }
  }
  for (; row < rows; ++row) {
    const S* one = p + row * stride_row;
    for (std::int64_t k = 0; k < depth; ++k) {
      panel[k * width + row] = static_cast<T>(widened(one[k * stride_k]));
    }
  }
}

// The entries of Kernels (kernels.h).
template <class Machine, class T>
struct Rows {
  static void pack(DType dtype, DType input, const void* data, std::int64_t stride_row,
                   std::int64_t stride_k, std::int64_t rows, std::int64_t depth, int width,
                   T* panels) {
    visit_operand(dtype, input, [&](auto type) {
      using S = decltype(type);
      if constexpr (std::is_same_v<S, double> == std::is_same_v<T, double>) {
        const S* p = static_cast<const S*>(data);
        if (stride_row == 1) return pack_columns<Machine>(p, stride_k, rows, depth, width, panels);
        for (std::int64_t row = 0; row < rows; row += width) {
          const std::int64_t count = rows - row < width ? rows - row : width;
          pack_panel<Machine>(p + row * stride_row, stride_row, stride_k, count, depth, width,
                              panels + row * depth);
        }
      }
    });
    const std::int64_t left = rows % width;
    T* const last = panels + (rows - left) * depth;
    for (std::int64_t k = 0; left != 0 && k < depth; ++k) {
      for (std::int64_t row = left; row < width; ++row) last[k * width + row] = T(0);
    }
  }

  static void load(DType dtype, const void* data, std::int64_t stride, std::int64_t n, T* out) {
    visit(dtype, [&](auto type) {
      load_row<Machine>(static_cast<const decltype(type)*>(data), stride, n, out);
    });
  }

  static void store(DType dtype, const T* values, std::int64_t n, void* data, std::int64_t stride) {
    visit(dtype, [&](auto type) {
      if constexpr (requires { narrow(*values, type); }) {
        store_row<Machine>(values, n, static_cast<decltype(type)*>(data), stride);
      }
    });
  }
};

}  // namespace
}  // namespace tcgemm::cpu
