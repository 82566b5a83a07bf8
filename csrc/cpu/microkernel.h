// The inner loop, which multiplies panels. Like rows.h, it is compiled once per instruction
// set.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "cpu/kernels.h"
#include "cpu/rows.h"

namespace tcgemm::cpu {
namespace {

inline constexpr std::int64_t kStepsPerRounding = 16;

// One step over k:
//
//              b(k, 0 .. columns-1)    kRows broadcasts of a,
//              [ vector ][ vector ]    kVectors loads of b,
//   a(0, k)    [  sum   ][  sum   ]    kRows * kVectors independent multiply-adds
//   a(1, k)    [  sum   ][  sum   ]
//
// Simd has Scalar, Vector, kWidth, load, store, broadcast, fma and, for f32, round_f16. kPanelRows
// and kPanelVectors are the size of a full panel, kRows and kVectors the size of a panel at an
// edge.
template <class Simd, int kPanelRows, int kPanelVectors>
struct Microkernel {
  using T = typename Simd::Scalar;
  using Vector = typename Simd::Vector;
  using Function = void (*)(const KBlock&, const T*, const T*, T*, std::int64_t);
  static constexpr int kColumns = kPanelVectors * Simd::kWidth;

  // Always inlined: otherwise the sums are in memory, not in registers.
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
  static void run(const KBlock& block, const T* a, const T* b, T* out, std::int64_t pitch) {
    Vector sums[kRows][kVectors] = {};
    if (!block.first) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          sums[i][j] = Simd::load(out + i * pitch + j * Simd::kWidth);
        }
      }
    }
    if constexpr (kRoundF16) {
      for (std::int64_t remaining = block.depth; remaining > 0; remaining -= kStepsPerRounding) {
        accumulate(remaining < kStepsPerRounding ? remaining : kStepsPerRounding, a, b, sums);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
          for (int j = 0; j < kVectors; ++j) sums[i][j] = Simd::round_f16(sums[i][j]);
        }
      }
    } else {
      accumulate(block.depth, a, b, sums);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        Simd::store(out + i * pitch + j * Simd::kWidth, sums[i][j]);
      }
    }
  }

  // The functions by [rows - 1][vectors - 1].
  template <bool kRoundF16>
  static constexpr auto table() {
    return []<int... kEntry>(std::integer_sequence<int, kEntry...>) {
      return std::array<Function, sizeof...(kEntry)>{
          &run<kRoundF16, kEntry / kPanelVectors + 1, kEntry % kPanelVectors + 1>...};
    }(std::make_integer_sequence<int, kPanelRows * kPanelVectors>{});
  }

  // Kernels::multiply (kernels.h). A panel of b stays in L1; a streams from L2.
  static void multiply(const KBlock& block, std::int64_t m, std::int64_t n, const T* a, const T* b,
                       T* sums, std::int64_t pitch) {
    static constexpr auto kExact = table<false>();
    const Function* functions = kExact.data();
    if constexpr (requires { &Simd::round_f16; }) {
      static constexpr auto kRounded = table<true>();
      if (block.round_f16) functions = kRounded.data();
    }
    for (std::int64_t column = 0; column < n; column += kColumns) {
      const std::int64_t columns = n - column < kColumns ? n - column : kColumns;
      const std::int64_t vectors = (columns + Simd::kWidth - 1) / Simd::kWidth;
      for (std::int64_t row = 0; row < m; row += kPanelRows) {
        const std::int64_t rows = m - row < kPanelRows ? m - row : kPanelRows;
        functions[(rows - 1) * kPanelVectors + vectors - 1](block, a + row * block.depth,
                                                            b + column * block.depth,
                                                            sums + row * pitch + column, pitch);
      }
    }
  }
};

template <class Conversion, class Simd, int kPanelRows, int kPanelVectors>
constexpr Kernels<typename Simd::Scalar> kernels() {
  using Multiplication = Microkernel<Simd, kPanelRows, kPanelVectors>;
  using RowFunctions = RowConversion<Conversion, typename Simd::Scalar>;
  static_assert(kPanelRows <= kMaxPanelWidth && Multiplication::kColumns <= kMaxPanelWidth);
  return {kPanelRows,          Multiplication::kColumns,
          &RowFunctions::pack, &Multiplication::multiply,
          &RowFunctions::load, &RowFunctions::store};
}

}  // namespace
}  // namespace tcgemm::cpu
