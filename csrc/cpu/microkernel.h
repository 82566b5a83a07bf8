// Panels times panels: the inner loop. Like rows.h compiled once per instruction set.
//
//              b(k, 0 .. columns-1)    one step of k: `rows` broadcasts of a,
//              [ vector ][ vector ]    kVectors loads of b,
//   a(0, k)    [  sum   ][  sum   ]    rows * kVectors independent multiply-adds
//   a(1, k)    [  sum   ][  sum   ]
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "cpu/kernels.h"
#include "cpu/rows.h"

namespace tcgemm::cpu {
namespace {

inline constexpr std::int64_t kProductsPerRounding = 16;

// Simd: Scalar, Vector, kWidth, load, store, broadcast, fma and, for f32, round_f16.
// kPanelRows and kPanelVectors are the full panel, kRows and kVectors what is left of it at an
// edge.
template <class Simd, int kPanelRows, int kPanelVectors>
struct Microkernel {
  using T = typename Simd::Scalar;
  using Vector = typename Simd::Vector;
  using Function = void (*)(const Steps&, const T*, const T*, T*, std::int64_t);
  static constexpr int kColumns = kPanelVectors * Simd::kWidth;

  // Inlined always: only then are the sums registers.
  template <int kRows, int kVectors>
  [[gnu::always_inline]] static void accumulate(std::int64_t depth, const T*& a, const T*& b,
                                                Vector (&sums)[kRows][kVectors]) {
    for (; depth > 0; --depth, a += kPanelRows, b += kColumns) {
      Vector row_of_b[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) row_of_b[j] = Simd::load(b + j * Simd::kWidth);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Vector element = Simd::broadcast(a + i);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) sums[i][j] = Simd::fma(element, row_of_b[j], sums[i][j]);
      }
    }
  }

  template <bool kRoundF16, int kRows, int kVectors>
  static void run(const Steps& steps, const T* a, const T* b, T* out, std::int64_t pitch) {
    Vector sums[kRows][kVectors] = {};
    if (!steps.first) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          sums[i][j] = Simd::load(out + i * pitch + j * Simd::kWidth);
        }
      }
    }
    if constexpr (kRoundF16) {
      for (std::int64_t left = steps.depth; left > 0; left -= kProductsPerRounding) {
        accumulate(left < kProductsPerRounding ? left : kProductsPerRounding, a, b, sums);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
          for (int j = 0; j < kVectors; ++j) sums[i][j] = Simd::round_f16(sums[i][j]);
        }
      }
    } else {
      accumulate(steps.depth, a, b, sums);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        Simd::store(out + i * pitch + j * Simd::kWidth, sums[i][j]);
      }
    }
  }

  // [rows - 1][vectors - 1]
  template <bool kRoundF16>
  static constexpr auto table() {
    return []<int... kEntry>(std::integer_sequence<int, kEntry...>) {
      return std::array<Function, sizeof...(kEntry)>{
          &run<kRoundF16, kEntry / kPanelVectors + 1, kEntry % kPanelVectors + 1>...};
    }(std::make_integer_sequence<int, kPanelRows * kPanelVectors>{});
  }

  // The entry of Kernels (kernels.h). A panel of b stays in the first cache, a comes from the
  // second.
  static void multiply(const Steps& steps, std::int64_t m, std::int64_t n, const T* a, const T* b,
                       T* sums, std::int64_t pitch) {
    static constexpr auto kExact = table<false>();
    const Function* functions = kExact.data();
    if constexpr (requires { &Simd::round_f16; }) {
      static constexpr auto kRounded = table<true>();
      if (steps.round_f16) functions = kRounded.data();
    }
    for (std::int64_t column = 0; column < n; column += kColumns) {
      const std::int64_t columns = n - column < kColumns ? n - column : kColumns;
      const std::int64_t vectors = (columns + Simd::kWidth - 1) / Simd::kWidth;
      for (std::int64_t row = 0; row < m; row += kPanelRows) {
        const std::int64_t rows = m - row < kPanelRows ? m - row : kPanelRows;
        functions[(rows - 1) * kPanelVectors + vectors - 1](steps, a + row * steps.depth,
                                                            b + column * steps.depth,
                                                            sums + row * pitch + column, pitch);
      }
    }
  }
};

template <class Machine, class Simd, int kPanelRows, int kPanelVectors>
constexpr Kernels<typename Simd::Scalar> kernels() {
  using Multiplication = Microkernel<Simd, kPanelRows, kPanelVectors>;
  using Conversion = Rows<Machine, typename Simd::Scalar>;
  static_assert(kPanelRows <= kWidestPanel && Multiplication::kColumns <= kWidestPanel);
  return {kPanelRows,        Multiplication::kColumns, &Conversion::pack, &Multiplication::multiply,
          &Conversion::load, &Conversion::store};
}

}  // namespace
}  // namespace tcgemm::cpu
