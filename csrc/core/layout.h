// The memory layout of operands: which dimension is contiguous.
#pragma once

#include <cstdint>

namespace tcgemm {

//              contiguous dimension   example for a     example for b
//   K-major    k of a, k of b         (M,K) row-major   w(N,K).t()
//   MN-major   m of a, n of b         x(K,M).t()        (K,N) row-major
enum class Major : std::uint8_t { K, MN };

// The letters belong to the BLAS call that torch makes, which has b first:
//   TN: a K-major, b K-major    NN: a K-major, b MN-major
//   TT: a MN-major, b K-major   NT: a MN-major, b MN-major
enum class Layout : std::uint8_t { TN, NN, TT, NT };

inline constexpr int kLayouts = 4;

constexpr Layout layout_of(Major a, Major b) {
  if (a == Major::K) return b == Major::K ? Layout::TN : Layout::NN;
  return b == Major::K ? Layout::TT : Layout::NT;
}

constexpr Major major_a(Layout layout) {
  return layout == Layout::TN || layout == Layout::NN ? Major::K : Major::MN;
}

constexpr Major major_b(Layout layout) {
  return layout == Layout::TN || layout == Layout::TT ? Major::K : Major::MN;
}

constexpr const char* name(Layout layout) {
  constexpr const char* names[kLayouts] = {"TN", "NN", "TT", "NT"};
  return names[static_cast<int>(layout)];
}

}  // namespace tcgemm
