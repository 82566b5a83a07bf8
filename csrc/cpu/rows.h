// Converts rows of any dtype and stride to and from the accumulator's type, and packs them into
// panels.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "cpu/convert.h"

namespace tcgemm::cpu {
namespace {

// This file is compiled once per instruction set: baseline.cpp, avx2.cpp and avx512.cpp include it
// after their target pragma, and pass F16Conversion, which differs between them. The anonymous
// namespace keeps the copies apart; otherwise the linker could give the baseline the AVX-512 copy.

template <class T>
struct QuadOf {
  typedef T type __attribute__((vector_size(4 * sizeof(T))));
};
template <class T>
using Quad = typename QuadOf<T>::type;
using UintQuad = Quad<std::uint32_t>;

// Loads four consecutive elements as the accumulator's type. A quad is passed by reference: a
// vector wider than the target's registers has no stable calling convention.
template <class Conversion>
struct QuadLoader {
  static void load(const float* p, Quad<float>& q) { std::memcpy(&q, p, sizeof q); }
  static void load(const double* p, Quad<double>& q) { std::memcpy(&q, p, sizeof q); }
  static void load(const Half* p, Quad<float>& q) { Conversion::widen(p, q); }
  static void load(const BFloat16* p, Quad<float>& q) {
    const UintQuad bits = zero_extended<std::uint16_t>(p) << 16;
    std::memcpy(&q, &bits, sizeof q);
  }
  template <int kMantissaBits, int kBias, bool kInfinities>
  static void load(const Float8<kMantissaBits, kBias, kInfinities>* p, Quad<float>& q) {
    using Format = Float8<kMantissaBits, kBias, kInfinities>;
    q = decode<Format, Quad<float>>(zero_extended<std::uint8_t>(p));
  }
  template <int kDropped>
  static void load(const Rounded<kDropped>* p, Quad<float>& q) {
    q = std::bit_cast<Quad<float>>(round_bits<kDropped>(zero_extended<std::uint32_t>(p)));
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
  static UintQuad zero_extended(const void* p) {
    Quad<Bits> narrow;
    std::memcpy(&narrow, p, sizeof narrow);
    return __builtin_convertvector(narrow, UintQuad);
  }
};

template <class Conversion, class S, class T>
concept HasQuadLoader = requires(const S* p, Quad<T>& q) { QuadLoader<Conversion>::load(p, q); };

// Calls f(a value of the C++ type of dtype).
template <class F>
void visit(DType dtype, F f) {
  switch (dtype) {
    case DType::f16: return f(Half{});
    case DType::bf16: return f(BFloat16{});
    case DType::f32: return f(float{});
    case DType::e4m3: return f(E4M3{});
    case DType::e5m2: return f(E5M2{});
    case DType::s8: return f(std::int8_t{});
    case DType::u8: return f(std::uint8_t{});
    case DType::f64: return f(double{});
    case DType::tf32:
    case DType::s32:
    case DType::s4:
    case DType::u4:
    case DType::b1: break;  // Tf32, store_integers, pack_int4 and binary_gemm read them
  }
}

// The same for an operand of a GEMM, which may be rounded when it is read.
template <class F>
void visit_operand(DType dtype, DType input, F f) {
  if (dtype == DType::f32 && input == DType::tf32) return f(Tf32{});
  if (dtype == DType::f32 && input == DType::bf16) return f(AsBFloat16{});
  visit(dtype, f);
}

// The compiler vectorizes all types but f16, whose conversions branch.
template <class Conversion, class T, class S>
void load_row(const S* __restrict p, std::int64_t stride, std::int64_t n, T* __restrict out) {
  std::int64_t i = 0;
  if (stride == 1) {
    if constexpr (!std::is_same_v<S, Half>) {
      for (; i < n; ++i) out[i] = static_cast<T>(widen(p[i]));
    } else if constexpr (std::is_same_v<T, float>) {
      for (; i + 4 <= n; i += 4) {
        Quad<float> q;
        Conversion::widen(p + i, q);
        std::memcpy(out + i, &q, sizeof q);
      }
    }
  }
  for (; i < n; ++i) out[i] = static_cast<T>(widen(p[i * stride]));
}

template <class Conversion, class T, class S>
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
        Conversion::narrow(q, p + i);
      }
    }
  }
  for (; i < n; ++i) narrow(values[i], p[i * stride]);
}

// Copies 4 x 4 elements: rows at p + i * stride_row become columns at out + k * pitch.
template <class Conversion, class T, class S>
void transpose_4x4(const S* p, std::int64_t stride_row, T* out, std::int64_t pitch) {
  Quad<T> r0, r1, r2, r3;
  QuadLoader<Conversion>::load(p, r0);
  QuadLoader<Conversion>::load(p + stride_row, r1);
  QuadLoader<Conversion>::load(p + 2 * stride_row, r2);
  QuadLoader<Conversion>::load(p + 3 * stride_row, r3);
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

// Steps of k to prefetch ahead. They are on other pages, which hardware prefetchers do not cross.
// An f16 GEMM with one row, which reads b from memory once, takes a third of the time with it.
inline constexpr std::int64_t kPrefetchDistance = 8;

// Packs rows that are adjacent in memory. k is the outer loop, so memory is read in order.
template <class Conversion, class T, class S>
void pack_columns(const S* p, std::int64_t stride_k, std::int64_t rows, std::int64_t depth,
                  int width, T* panels) {
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t row = 0; row < rows; row += width) {
      const std::int64_t count = rows - row < width ? rows - row : width;
      const S* source = p + k * stride_k + row;
      __builtin_prefetch(source + kPrefetchDistance * stride_k);
      __builtin_prefetch(source + kPrefetchDistance * stride_k + count - 1);
      load_row<Conversion>(source, 1, count, panels + row * depth + k * width);
    }
  }
}

// Packs one panel (rows <= width) of any other strides.
template <class Conversion, class T, class S>
void pack_panel(const S* p, std::int64_t stride_row, std::int64_t stride_k, std::int64_t rows,
                std::int64_t depth, int width, T* panel) {
  std::int64_t row = 0;
  if constexpr (HasQuadLoader<Conversion, S, T>) {
    for (; stride_k == 1 && row + 4 <= rows; row += 4) {
      const S* first_row = p + row * stride_row;
      std::int64_t k = 0;
      for (; k + 4 <= depth; k += 4) {
        transpose_4x4<Conversion>(first_row + k, stride_row, panel + k * width + row, width);
      }
      for (; k < depth; ++k) {
        load_row<Conversion>(first_row + k, stride_row, 4, panel + k * width + row);
      }
    }
  }
  for (; row < rows; ++row) {
    const S* source = p + row * stride_row;
    for (std::int64_t k = 0; k < depth; ++k) {
      panel[k * width + row] = static_cast<T>(widen(source[k * stride_k]));
    }
  }
}

// Packs rows of s4 or u4, which are contiguous along k, from an even k on.
template <class T>
void pack_int4(bool is_signed, const std::uint8_t* p, std::int64_t stride_row, std::int64_t rows,
               std::int64_t depth, int width, T* panels) {
  const int sign = is_signed ? 8 : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint8_t* const source = p + row * stride_row / 2;
    T* const to = panels + row / width * width * depth + row % width;
    for (std::int64_t k = 0; k < depth; ++k) {
      const int code = source[k / 2] >> (k % 2 * 4) & 15;
      to[k * width] = static_cast<T>((code ^ sign) - sign);
    }
  }
}

// Kernels::pack, load and store (kernels.h).
template <class Conversion, class T>
struct RowConversion {
  static void pack(DType dtype, DType input, const void* data, std::int64_t stride_row,
                   std::int64_t stride_k, std::int64_t rows, std::int64_t depth, int width,
                   T* panels) {
    if (is_int4(dtype))
      pack_int4(dtype == DType::s4, static_cast<const std::uint8_t*>(data), stride_row, rows, depth,
                width, panels);
    else
      visit_operand(dtype, input, [&](auto type) {
        using S = decltype(type);
        if constexpr (std::is_same_v<S, double> == std::is_same_v<T, double>) {
          const S* p = static_cast<const S*>(data);
          if (stride_row == 1)
            return pack_columns<Conversion>(p, stride_k, rows, depth, width, panels);
          for (std::int64_t row = 0; row < rows; row += width) {
            const std::int64_t count = rows - row < width ? rows - row : width;
            pack_panel<Conversion>(p + row * stride_row, stride_row, stride_k, count, depth, width,
                                   panels + row * depth);
          }
        }
      });
    const std::int64_t remainder = rows % width;
    T* const last = panels + (rows - remainder) * depth;
    for (std::int64_t k = 0; remainder != 0 && k < depth; ++k) {
      for (std::int64_t row = remainder; row < width; ++row) last[k * width + row] = T(0);
    }
  }

  static void load(DType dtype, const void* data, std::int64_t stride, std::int64_t n, T* out) {
    visit(dtype, [&](auto type) {
      load_row<Conversion>(static_cast<const decltype(type)*>(data), stride, n, out);
    });
  }

  static void store(DType dtype, const T* values, std::int64_t n, void* data, std::int64_t stride) {
    visit(dtype, [&](auto type) {
      if constexpr (requires { narrow(*values, type); }) {
        store_row<Conversion>(values, n, static_cast<decltype(type)*>(data), stride);
      }
    });
  }
};

}  // namespace
}  // namespace tcgemm::cpu
