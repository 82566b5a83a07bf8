// Stores of column-major results directly from registers, for fragments with RowOrder::interleaved.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype_rules.h"
#include "core/params.h"
#include "ptx/convert.cuh"
#include "tile/epilogue.cuh"
#include "tile/scale.cuh"

namespace tcgemm::tile {

// A lane holds adjacent elements of a column, and each store writes a pair of them. The eight
// groups of a warp write 16 rows of four columns at a time: 64 contiguous bytes of an f32 or s32
// column, 32 of a 16-bit one. These are whole sectors, and four warps with adjacent rows fill whole
// cache lines.
//
//   v[4 j + i], v[4 j + 2 + i]: rows 2 g and 2 g + 1 of column 8 j + 2 t + i        lane = 4 g + t

// Two adjacent elements of a column as one integer, low element first. A struct of two words would
// become two stores.
template <DType kOut, class T>
__device__ inline auto column_pair(T low, T high) {
  if constexpr (bits(kOut) == 32)
    return std::uint64_t(reinterpret_cast<const std::uint32_t&>(high)) << 32 |
           reinterpret_cast<const std::uint32_t&>(low);
  else if constexpr (bits(kOut) == 16)
    return ptx::pack<kOut>(low, high);
  else
    return pack_8bit_pair<kOut>(low, high);
}

// True if the result is column-major, aligned for stores of pairs, and has all of 16 rows x
// `columns` inside the matrix.
__device__ inline bool all_columns_inside(const Epilogue& epilogue, const Window& window,
                                          int columns) {
  return epilogue.out_stride_row == 1 && epilogue.out_column_vectors && window.rows >= kBoxRows &&
         window.cols >= columns;
}

template <DType kOut, bool kWhole, class T, int kCount>
__device__ inline void store_columns_as(const Epilogue& epilogue, const Window& window,
                                        const T (&v)[kCount]) {
  using Pair = decltype(column_pair<kOut>(v[0], v[0]));
  using Element =
      std::conditional_t<bits(kOut) == 32, std::uint32_t,
                         std::conditional_t<bits(kOut) == 16, std::uint16_t, std::uint8_t>>;
  const int col = threadIdx.x % 4 * 2;
  Element* to =
      static_cast<Element*>(epilogue.out) + out_offset(epilogue, window, window.lane_rows[0], col);
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j, to += 8 * epilogue.out_stride_col) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Element* column = to + i * epilogue.out_stride_col;
      const Pair pair = column_pair<kOut>(v[4 * j + i], v[4 * j + 2 + i]);
      if constexpr (kWhole) {
        *reinterpret_cast<Pair*>(column) = pair;
      } else if (8 * j + col + i < window.cols) {
        const Element* elements = reinterpret_cast<const Element*>(&pair);
        if (window.holds(0)) column[0] = elements[0];
        if (window.holds(1)) column[1] = elements[1];
      }
    }
  }
}

template <DType kOut, class T, int kCount>
__device__ inline void store_columns_as(const Epilogue& epilogue, const Window& window,
                                        const T (&v)[kCount]) {
  if (all_columns_inside(epilogue, window, 2 * kCount))
    store_columns_as<kOut, true>(epilogue, window, v);
  else
    store_columns_as<kOut, false>(epilogue, window, v);
}

// Stores one unit. out_stride_row must be 1.
template <class T, int kCount>
__device__ inline void store_columns(const Epilogue& epilogue, const Window& window,
                                     const T (&v)[kCount]) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    store_columns_as<DType::s32>(epilogue, window, v);
  } else {
    using enum DType;
    static_assert(are_all({bf16, f16, e4m3, e5m2, s8}, is_narrow_result));
    switch (epilogue.out_dtype) {
      case DType::f32: return store_columns_as<DType::f32>(epilogue, window, v);
      case DType::bf16: return store_columns_as<DType::bf16>(epilogue, window, v);
      case DType::f16: return store_columns_as<DType::f16>(epilogue, window, v);
      case DType::e4m3: return store_columns_as<DType::e4m3>(epilogue, window, v);
      case DType::e5m2: return store_columns_as<DType::e5m2>(epilogue, window, v);
      default: return store_columns_as<DType::s8>(epilogue, window, v);
    }
  }
}

// Stores all accumulators of a warp as kOut, without an epilogue and without a loop over units: the
// code is short. all_columns_inside must hold. Returns false, and stores nothing, if the result has
// another dtype or an epilogue.
template <DType kOut, class T, int kCount>
__device__ inline bool store_accumulators(const Epilogue& epilogue, const Window& window,
                                          const T (&fragment)[kCount]) {
  const bool plain = epilogue.out_dtype == kOut && !epilogue.has_terms && !epilogue.scaled &&
                     !epilogue.zero_points && epilogue.alpha_s32 == 1;
  if (plain) store_columns_as<kOut, true>(epilogue, window, fragment);
  return plain;
}

}  // namespace tcgemm::tile
