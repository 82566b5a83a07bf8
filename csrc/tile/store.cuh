// Stores a warp's fragment to the result in global memory, 16 rows x kUnit columns at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <numeric>
#include <type_traits>

#include "core/dtype_rules.h"
#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"
#include "tile/epilogue.cuh"
#include "tile/fragment.cuh"
#include "tile/scale.cuh"
#include "tile/store_columns.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::tile {

// f32 and s32 results can be stored directly from registers: the four lanes of a row fill a sector
// of 32 bytes. Narrower results are rearranged in the warp's staging buffer smem_d, 2 KB of shared
// memory for 16 rows x 64 columns, so that a store writes a whole row of it:
//
//   registers --stmatrix--> smem_d --TMA--> out                              sm90a; TMA clips edges
//   registers --st.shared--> smem_d --16-byte or element stores--> out

// Stores a unit of f32, s32 or f64 directly from registers. Any strides and edges are allowed.
template <class T, int kCount>
__device__ inline void store_direct(const Epilogue& epilogue, const Window& window,
                                    const T (&v)[kCount]) {
  using Pair = std::conditional_t<std::is_same_v<T, double>, double2,
                                  std::conditional_t<std::is_same_v<T, float>, float2, int2>>;
  const int col = threadIdx.x % 4 * 2;
  const bool whole = epilogue.out_row_vectors && window.cols >= 2 * kCount;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!window.holds(half)) continue;
    T* to =
        static_cast<T*>(epilogue.out) + out_offset(epilogue, window, window.lane_rows[half], col);
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      const T x = v[4 * j + 2 * half], y = v[4 * j + 2 * half + 1];
      if (whole) {
        *reinterpret_cast<Pair*>(to + 8 * j) = {x, y};
      } else {
        if (col + 8 * j < window.cols) to[8 * j * epilogue.out_stride_col] = x;
        if (col + 8 * j + 1 < window.cols) to[(8 * j + 1) * epilogue.out_stride_col] = y;
      }
    }
  }
}

// Writes a unit of 16-bit results to smem_d, from chunk `chunk` on; a chunk has 8 columns. words:
// the pairs of a lane.
template <bool kHopper, RowOrder kRowOrder, int kWords>
__device__ inline void write_words(char* smem_d, int chunk, const std::uint32_t (&words)[kWords]) {
  const int lane = threadIdx.x % 32;
  if constexpr (kHopper) {
    // The matrices of one stmatrix: rows 0-7 and 8-15 of 8 columns, then the same rows of the
    // next 8 columns.
    const std::uint32_t address = ptx::shared_address(smem_d);
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i)
      ptx::stmatrix_x4(
          address + swizzle128(row_of<kRowOrder>(lane % 16), chunk + 2 * i + lane / 16),
          words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int row = row_of<kRowOrder>(lane / 4 + i % 2 * 8);
      *reinterpret_cast<std::uint32_t*>(smem_d + swizzle128(row, chunk + i / 2) + lane % 4 * 4) =
          words[i];
    }
  }
}

template <DType kOut, bool kHopper, RowOrder kRowOrder, int kCount>
__device__ inline void pack_16bit(char* smem_d, int chunk, const float (&v)[kCount],
                                  bool relu = false) {
  std::uint32_t words[kCount / 2];
  if (relu) {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) words[i] = ptx::pack_relu<kOut>(v[2 * i], v[2 * i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) words[i] = ptx::pack<kOut>(v[2 * i], v[2 * i + 1]);
  }
  write_words<kHopper, kRowOrder>(smem_d, chunk, words);
}

// The same without a branch for the type.
template <bool kHopper, RowOrder kRowOrder, int kCount>
__device__ inline void pack_16bit(bool is_f16, char* smem_d, int chunk, const float (&v)[kCount]) {
  std::uint32_t words[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) words[i] = ptx::pack(is_f16, v[2 * i], v[2 * i + 1]);
  write_words<kHopper, kRowOrder>(smem_d, chunk, words);
}

// The same for 8-bit results, where a chunk of 8 columns has 8 bytes.
template <DType kOut, RowOrder kRowOrder, int kCount>
__device__ inline void pack_8bit(char* smem_d, int chunk, const float (&v)[kCount]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const int row = row_of<kRowOrder>(lane / 4 + i % 2 * 8);
    const int byte = (chunk + i / 2) * 8 + lane % 4 * 2;
    *reinterpret_cast<std::uint16_t*>(smem_d + swizzle128(row, byte / 16) + byte % 16) =
        pack_8bit_pair<kOut>(v[2 * i], v[2 * i + 1]);
  }
}

// The same for f32 and s32 results. It writes kCount / 2 of the 32 columns of smem_d, from chunk
// `chunk` on; a chunk has 4 columns.
template <RowOrder kRowOrder, int kCount, class T>
__device__ inline void pack_32bit(char* smem_d, int chunk, const T* v) {
  using Pair = std::conditional_t<std::is_same_v<T, float>, float2, int2>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const int row = row_of<kRowOrder>(lane / 4 + i % 2 * 8);
    const int pair_chunk = chunk + i / 2 * 2 + lane % 4 / 2;
    *reinterpret_cast<Pair*>(smem_d + swizzle128(row, pair_chunk) + lane % 2 * 8) = {v[2 * i],
                                                                                     v[2 * i + 1]};
  }
}

// The window that begins `columns` columns further to the left.
__device__ inline Window move_left(Window window, int columns) {
  window.col -= columns;
  window.cols += columns;
  return window;
}

// Copies a column of smem_d to global memory. It reads kAtOnce rows before it writes them: one row
// at a time would wait for the latency of shared memory every time.
template <bool kWhole, class Element>
__device__ inline void store_column(const Epilogue& epilogue, const Window& window,
                                    const char* smem_d, int col) {
  constexpr int kVectorElements = 16 / sizeof(Element), kAtOnce = 8;
  Element* to = static_cast<Element*>(epilogue.out) + out_offset(epilogue, window, 0, col);
#pragma unroll(kWhole ? kBoxRows / kAtOnce : 1)
  for (int row = 0; row < kBoxRows; row += kAtOnce) {
    Element x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      x[i] = *reinterpret_cast<const Element*>(smem_d + swizzle128(row + i, col / kVectorElements) +
                                               col % kVectorElements * sizeof(Element));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, to += epilogue.out_stride_row)
      if (kWhole || row + i < window.rows) *to = x[i];
  }
}

// Copies smem_d to a result with any strides, one element a lane. Stores of 16-byte vectors, which
// are a fourth as many, took longer.
template <int kColumns, class Element>
__device__ inline void store_elements(const Epilogue& epilogue, const Window& window,
                                      const char* smem_d) {
#pragma unroll 1
  for (int col = threadIdx.x % 32; col < min(kColumns, window.cols); col += 32) {
    if (window.rows >= kBoxRows)
      store_column<true, Element>(epilogue, window, smem_d, col);
    else
      store_column<false, Element>(epilogue, window, smem_d, col);
  }
}

// Copies kColumns columns of smem_d to global memory. `window` is the position of the first column.
template <int kColumns, class Element>
__device__ inline void store_staged(const Epilogue& epilogue, const Window& window,
                                    const char* smem_d) {
  const int lane = threadIdx.x % 32;
  auto* out = static_cast<Element*>(epilogue.out);
  constexpr int kVectorElements = 16 / sizeof(Element);
  if (epilogue.out_row_vectors && window.cols >= kColumns) {
    constexpr int kLanes = kColumns / kVectorElements;
#pragma unroll
    for (int row = lane / kLanes; row < kBoxRows; row += 32 / kLanes) {
      const int chunk = lane % kLanes;
      if (row < window.rows)
        *reinterpret_cast<uint4*>(out +
                                  out_offset(epilogue, window, row, kVectorElements * chunk)) =
            *reinterpret_cast<const uint4*>(smem_d + swizzle128(row, chunk));
    }
    return;
  }
  store_elements<kColumns, Element>(epilogue, window, smem_d);
}

// Stores a unit of f32 or s32 whose rows are not aligned to 16-byte vectors. smem_d has a box of 32
// columns, in which the unit begins at column `box_col`; a full box is copied to global memory.
template <RowOrder kRowOrder, class T, int kCount>
__device__ inline void store_32bit_staged(const Epilogue& epilogue, const Window& window,
                                          char* smem_d, int box_col, const T (&v)[kCount]) {
  constexpr int kColumns = 2 * kCount, kBox = 32, kStep = kColumns < kBox ? kColumns : kBox;
#pragma unroll
  for (int first = 0; first < kColumns; first += kStep) {
    __syncwarp();
    pack_32bit<kRowOrder, kStep / 2>(smem_d, box_col / 4, v + first / 2);
    if (box_col + kStep < kBox) continue;
    __syncwarp();
    store_staged<kBox, std::uint32_t>(epilogue, move_left(window, box_col - first), smem_d);
  }
}

// Stores smem_d as one TMA box.
__device__ inline void tma_store_box(const TensorMap* map, const char* smem_d, int row, int col,
                                     int batch, L2Policy policy) {
  ptx::fence_proxy_async();
  __syncwarp();
  if (ptx::elect()) ptx::tma_store(map, ptx::shared_address(smem_d), col, row, batch, policy);
}

// Waits until TMA has read all but the last kPending boxes of this warp, whose buffers may then be
// overwritten. For the lanes that have not stored a box there is nothing to wait for.
template <int kPending = 0>
__device__ inline void wait_box_read() {
  ptx::tma_store_wait_read<kPending>();
  __syncwarp();
}

// Stores a unit of f32 or s32 by TMA. The unit is one or more boxes of 32 columns, or a part of a
// box that begins at column `box_col`.
template <RowOrder kRowOrder, class T, int kCount>
__device__ inline void tma_store_32bit(const TensorMap* map, char* smem_d, int row, int col,
                                       int batch, L2Policy policy, int box_col,
                                       const T (&v)[kCount]) {
  constexpr int kColumns = 2 * kCount, kBox = 32, kStep = kColumns < kBox ? kColumns : kBox;
#pragma unroll
  for (int first = 0; first < kColumns; first += kStep) {
    if (box_col == 0) wait_box_read();
    pack_32bit<kRowOrder, kStep / 2>(smem_d, box_col / 4, v + first / 2);
    if (box_col + kStep == kBox)
      tma_store_box(map, smem_d, row, col + first - box_col, batch, policy);
  }
}

// Copies the values of a fragment from column kFirst on.
template <int kFirst, class Fragment, class T, int kCount>
__device__ inline void copy_columns(const Fragment* fragment, T (&v)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount / 2; ++j) {
    const auto x = pair(fragment, kFirst / 8 + j / 2, j % 2);
    v[2 * j] = x.x;
    v[2 * j + 1] = x.y;
  }
}

// Copies unit `unit` of a fragment. The caller's loop over units is rolled, and registers have no
// dynamic index, so this is a chain of selections.
template <int kUnits, class Fragment, class T, int kCount, int kUnit = 0>
__device__ inline void select_unit(const Fragment* fragment, int unit, T (&v)[kCount]) {
  if (kUnit == unit) copy_columns<kUnit * kCount * 2>(fragment, v);
  if constexpr (kUnit + 1 < kUnits)
    select_unit<kUnits, Fragment, T, kCount, kUnit + 1>(fragment, unit, v);
}

// Writes a unit of 16-bit or 8-bit results to smem_d.
template <bool kHopper, RowOrder kRowOrder, int kCount>
__device__ inline void pack(DType type, char* smem_d, int chunk, const float (&v)[kCount]) {
  using enum DType;
  static_assert(are_all({bf16, f16, e4m3, e5m2, s8}, is_narrow_result));
  if (type == DType::bf16)
    pack_16bit<DType::bf16, kHopper, kRowOrder>(smem_d, chunk, v);
  else if (type == DType::f16)
    pack_16bit<DType::f16, kHopper, kRowOrder>(smem_d, chunk, v);
  else if (type == DType::e4m3)
    pack_8bit<DType::e4m3, kRowOrder>(smem_d, chunk, v);
  else if (type == DType::e5m2)
    pack_8bit<DType::e5m2, kRowOrder>(smem_d, chunk, v);
  else
    pack_8bit<DType::s8, kRowOrder>(smem_d, chunk, v);
}

// Applies the epilogue to the accumulators of a unit and calls store(values). Values are s32 for
// s32 results and floats for all others.
template <int kCount, class Store>
__device__ inline void finish_unit(const Epilogue& epilogue, const Window& window,
                                   float (&v)[kCount], const Store& store) {
  if (epilogue.scaled) scale(epilogue, window, v);
  if (epilogue.has_terms) {
    finish(epilogue, window, v);
    requantise(epilogue, window, v);
  }
  store(v);
}

template <int kCount, class Store>
__device__ inline void finish_unit(const Epilogue& epilogue, const Window& window,
                                   std::int32_t (&v)[kCount], const Store& store) {
  if (epilogue.zero_points) subtract_zero_points(epilogue.zeros, window, v);
  if (epilogue.out_dtype == DType::s32) {
#pragma unroll
    for (std::int32_t& x : v) x *= epilogue.alpha_s32;
    if (epilogue.has_terms) finish(epilogue, window, v);
    store(v);
    return;
  }
  float values[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = v[i];
  finish_unit(epilogue, window, values, store);
}

// Stores 16 x kColumns accumulators of a warp from element (row, col) of matrix `batch` on, after
// the epilogue. values(unit, v) copies the accumulators of a unit to v. smem_d: kStagingBytes of
// shared memory, 1024-byte aligned, that only this warp uses. map: the TMA map of the result, or
// nullptr. After the return TMA may still read the last box from smem_d.
template <int kColumns, int kUnit, bool kHopper, class T, RowOrder kRowOrder = RowOrder::native,
          class Values>
__device__ inline void store_fragment(const Epilogue& epilogue, const Extent& extent,
                                      const TensorMap* map, char* smem_d, int row, int col,
                                      int batch, const Values& values) {
  // A tile is a whole number of boxes: of 160 columns, each has 32.
  constexpr int kBox = std::gcd(kColumns, kBoxColumns);
  static_assert(kBox % kUnit == 0);
  if (row >= extent.m) return;
#pragma unroll 1
  for (int unit = 0; unit < kColumns / kUnit; ++unit) {
    const int first = col + unit * kUnit;
    const int box_col = unit * kUnit % kBox;
    if (first - box_col >= extent.n) break;
    const Window window = tile::window<kRowOrder>(extent, row, first, batch);
    T accumulators[kUnit / 2];
    values(unit, accumulators);
    finish_unit(epilogue, window, accumulators, [&](const auto& v) {
      if constexpr (kRowOrder == RowOrder::interleaved) {
        if (epilogue.out_stride_row == 1) {
          store_columns(epilogue, window, v);
          return;
        }
      }
      constexpr bool kS32 = std::is_same_v<decltype(v[0]), const std::int32_t&>;
      if (kS32 || epilogue.out_dtype == DType::f32) {
        if (kHopper && map != nullptr)
          tma_store_32bit<kRowOrder>(map, smem_d, row, first, batch, epilogue.store_policy,
                                     box_col % 32, v);
        else if (kRowOrder == RowOrder::interleaved ||
                 (epilogue.out_row_vectors &&
                  move_left(window, box_col % 32).cols >= max(kUnit, 32)))
          store_direct(epilogue, window, v);  // all columns of the box are inside the matrix
        else
          store_32bit_staged<kRowOrder>(epilogue, window, smem_d, box_col % 32, v);
      } else {
        if (box_col == 0) {
          if constexpr (kHopper)
            wait_box_read();
          else
            __syncwarp();
        }
        if constexpr (!kS32) pack<kHopper, kRowOrder>(epilogue.out_dtype, smem_d, box_col / 8, v);
        if (box_col + kUnit < kBox) return;
        if (kHopper && map != nullptr) {
          tma_store_box(map, smem_d, row, first - box_col, batch, epilogue.store_policy);
          return;
        }
        __syncwarp();
        const Window box = move_left(window, box_col);
        if (addressable_bits(epilogue.out_dtype) == 16)
          store_staged<kBox, std::uint16_t>(epilogue, box, smem_d);
        else
          store_staged<kBox, std::uint8_t>(epilogue, box, smem_d);
      }
    });
  }
}

// The same for kFragments fragments of a warp, each 16 rows below the one before. The loop is
// rolled, so the epilogue is compiled once; a selection replaces the dynamic index that registers
// lack.
template <int kColumns, int kUnit, class T, RowOrder kRowOrder = RowOrder::native, class Register,
          int kFragments, int kRegisters>
__device__ inline void store_fragments(const Epilogue& epilogue, const Extent& extent, char* smem_d,
                                       int row, int col, int batch,
                                       const Register (&fragments)[kFragments][kRegisters]) {
#pragma unroll 1
  for (int i = 0; i < kFragments; ++i) {
    store_fragment<kColumns, kUnit, false, T, kRowOrder>(
        epilogue, extent, nullptr, smem_d, row + i * 16, col, batch,
        [&](int unit, T(&v)[kUnit / 2]) {
#pragma unroll
          for (int j = 0; j < kFragments; ++j)
            if (i == j) select_unit<kColumns / kUnit>(fragments[j], unit, v);
        });
  }
}

}  // namespace tcgemm::tile
