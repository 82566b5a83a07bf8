// From a warp's fragment to the result in memory, 16 rows x kUnit columns at a time.
//
// f32 and s32 results go straight from registers: two rows of four lanes fill a sector. Narrower
// ones are turned in 2 KB of shared memory, 16 rows x 64 columns, so that a row leaves in one
// piece:
//
//   registers --stmatrix--> slab --TMA--> out       Hopper; edges are TMA's affair
//   registers --st.shared-> slab --16-byte or element stores--> out
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "core/params.h"
#include "ptx/convert.cuh"
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

template <class T, int kCount>
__device__ inline void store_words(const Epilogue& epilogue, const Window& window,
                                   const T (&v)[kCount]) {
  using Pair = std::conditional_t<std::is_same_v<T, double>, double2,
                                  std::conditional_t<std::is_same_v<T, float>, float2, int2>>;
  const int col = threadIdx.x % 4 * 2;
  const bool whole = epilogue.out_vector && window.cols >= 2 * kCount;
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

// A unit into the slab, from chunk `chunk` (8 columns each) on.
template <DType kOut, bool kHopper, RowOrder kRowOrder, int kCount>
__device__ inline void pack(char* smem_d, int chunk, const float (&v)[kCount]) {
  const int lane = threadIdx.x % 32;
  if constexpr (kHopper) {
    // Matrices of one stmatrix: rows 0-7 and 8-15 of 8 columns, then of the next 8.
    const std::uint32_t address = ptx::shared_address(smem_d);
#pragma unroll
    for (int i = 0; i < kCount / 8; ++i) {
      const float* x = v + 8 * i;
      ptx::stmatrix_x4(
          address + swizzle128(row_of<kRowOrder>(lane % 16), chunk + 2 * i + lane / 16),
          ptx::pack<kOut>(x[0], x[1]), ptx::pack<kOut>(x[2], x[3]), ptx::pack<kOut>(x[4], x[5]),
          ptx::pack<kOut>(x[6], x[7]));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const int row = row_of<kRowOrder>(lane / 4 + i % 2 * 8);
      *reinterpret_cast<std::uint32_t*>(smem_d + swizzle128(row, chunk + i / 2) + lane % 4 * 4) =
          ptx::pack<kOut>(v[2 * i], v[2 * i + 1]);
    }
  }
}

// The same for results of 8 bits: a chunk of 8 columns is 8 bytes.
template <DType kOut, RowOrder kRowOrder, int kCount>
__device__ inline void pack_bytes(char* smem_d, int chunk, const float (&v)[kCount]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const int row = row_of<kRowOrder>(lane / 4 + i % 2 * 8);
    const int at = (chunk + i / 2) * 8 + lane % 4 * 2;
    *reinterpret_cast<std::uint16_t*>(smem_d + swizzle128(row, at / 16) + at % 16) =
        narrow_pair<kOut>(v[2 * i], v[2 * i + 1]);
  }
}

// kCount / 2 columns of f32 or s32, of the 32 that fill the slab, from chunk `chunk` (4 columns)
// on.
template <RowOrder kRowOrder, int kCount, class T>
__device__ inline void pack_words(char* smem_d, int chunk, const T* v) {
  using Pair = std::conditional_t<std::is_same_v<T, float>, float2, int2>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const int row = row_of<kRowOrder>(lane / 4 + i % 2 * 8), at = chunk + i / 2 * 2 + lane % 4 / 2;
    *reinterpret_cast<Pair*>(smem_d + swizzle128(row, at) + lane % 2 * 8) = {v[2 * i],
                                                                             v[2 * i + 1]};
  }
}

// The same part of a result, some columns to the left.
__device__ inline Window moved(Window window, int columns) {
  window.col -= columns;
  window.cols += columns;
  return window;
}

// A column of the slab to memory, some rows at once: one at a time would wait for shared memory
// every time.
template <bool kWhole, class Element>
__device__ inline void store_column(const Epilogue& epilogue, const Window& window,
                                    const char* smem_d, int col) {
  constexpr int kInWord = 16 / sizeof(Element), kAtOnce = 8;
  Element* to = static_cast<Element*>(epilogue.out) + out_offset(epilogue, window, 0, col);
#pragma unroll(kWhole ? kBoxRows / kAtOnce : 1)
  for (int row = 0; row < kBoxRows; row += kAtOnce) {
    Element x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      x[i] = *reinterpret_cast<const Element*>(smem_d + swizzle128(row + i, col / kInWord) +
                                               col % kInWord * sizeof(Element));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, to += epilogue.out_stride_row)
      if (kWhole || row + i < window.rows) *to = x[i];
  }
}

// Rows of the slab to any strides, an element a lane. Words of 16 bytes cut out of the slab, with a
// fourth of the stores, took longer.
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

// kColumns of the slab to memory; `window` is where its first column lies.
template <int kColumns, class Element>
__device__ inline void store_staged(const Epilogue& epilogue, const Window& window,
                                    const char* smem_d) {
  const int lane = threadIdx.x % 32;
  auto* out = static_cast<Element*>(epilogue.out);
  constexpr int kInWord = 16 / sizeof(Element);
  if (epilogue.out_vector && window.cols >= kColumns) {
    constexpr int kLanes = kColumns / kInWord;
#pragma unroll
    for (int row = lane / kLanes; row < kBoxRows; row += 32 / kLanes) {
      const int chunk = lane % kLanes;
      if (row < window.rows)
        *reinterpret_cast<uint4*>(out + out_offset(epilogue, window, row, kInWord * chunk)) =
            *reinterpret_cast<const uint4*>(smem_d + swizzle128(row, chunk));
    }
    return;
  }
  store_elements<kColumns, Element>(epilogue, window, smem_d);
}

// A unit of f32 or s32 whose rows are not whole words, which begins at column `inside` of 32:
// turned in the slab, a row of 32 columns leaves together.
template <RowOrder kRowOrder, class T, int kCount>
__device__ inline void turn_words(const Epilogue& epilogue, const Window& window, char* smem_d,
                                  int inside, const T (&v)[kCount]) {
  constexpr int kColumns = 2 * kCount, kBox = 32, kPart = kColumns < kBox ? kColumns : kBox;
#pragma unroll
  for (int first = 0; first < kColumns; first += kPart) {
    __syncwarp();
    pack_words<kRowOrder, kPart / 2>(smem_d, inside / 4, v + first / 2);
    if (inside + kPart < kBox) continue;
    __syncwarp();
    store_staged<kBox, std::uint32_t>(epilogue, moved(window, inside - first), smem_d);
  }
}

// What is packed in the slab leaves as one box.
__device__ inline void send_box(const TensorMap* map, const char* smem_d, int row, int col,
                                int batch) {
  ptx::fence_proxy_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::tma_store(map, ptx::shared_address(smem_d), col, row, batch);
}

// Until the slab may be written again.
__device__ inline void await_box() {
  if (threadIdx.x % 32 == 0) ptx::tma_store_wait_read<0>();
  __syncwarp();
}

// A unit of f32 or s32, which begins at column `inside` of a box: some boxes, or a part of one.
template <RowOrder kRowOrder, class T, int kCount>
__device__ inline void send_words(const TensorMap* map, char* smem_d, int row, int col, int batch,
                                  int inside, const T (&v)[kCount]) {
  constexpr int kColumns = 2 * kCount, kBox = 32, kPart = kColumns < kBox ? kColumns : kBox;
#pragma unroll
  for (int first = 0; first < kColumns; first += kPart) {
    if (inside == 0) await_box();
    pack_words<kRowOrder, kPart / 2>(smem_d, inside / 4, v + first / 2);
    if (inside + kPart == kBox) send_box(map, smem_d, row, col + first - inside, batch);
  }
}

template <int kFirst, class Fragment, class T, int kCount>
__device__ inline void copy_unit(const Fragment* fragment, T (&v)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount / 2; ++j) {
    const auto x = pair(fragment, kFirst * (kCount / 4) + j / 2, j % 2);
    v[2 * j] = x.x;
    v[2 * j + 1] = x.y;
  }
}

// The unit-th unit of a fragment in registers. Registers have no index: the caller's loop over
// units stays rolled, and this one selects.
template <int kUnits, class Fragment, class T, int kCount, int kUnit = 0>
__device__ inline void select(const Fragment* fragment, int unit, T (&v)[kCount]) {
  if (kUnit == unit) copy_unit<kUnit>(fragment, v);
  if constexpr (kUnit + 1 < kUnits)
    select<kUnits, Fragment, T, kCount, kUnit + 1>(fragment, unit, v);
}

// bias, one row for all, onto a unit, which may reach past the matrix by whole words.
template <DType kType, int kCount>
__device__ inline void add_row(const TensorRef& bias, const Window& window, float (&v)[kCount]) {
  const int col = threadIdx.x % 4 * 2;
  const std::int64_t offset = window.batch * bias.stride_batch + window.col + col;
  float2 pairs[kCount / 4] = {};
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j)
    if (8 * j < window.cols) pairs[j] = load_pair<kType>(bias.data, offset + 8 * j);
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] += i % 2 == 0 ? pairs[i / 4].x : pairs[i / 4].y;
}

// What the fast path does to scaled accumulators: a bias that serves all rows, or with neighbours
// all columns, and relu.
template <RowOrder kRowOrder, int kCount>
__device__ inline void finish_fast(const Epilogue& epilogue, const Window& window,
                                   float (&v)[kCount]) {
  if (epilogue.scaled) scale<true>(epilogue, window, v);
  const TensorRef& bias = epilogue.sources[kBias];
  if (kRowOrder == RowOrder::interleaved && bias.data != nullptr && bias.stride_col == 0) {
    const std::int64_t offset = window.batch * bias.stride_batch + window.row * bias.stride_row;
    add_rows(bias, 1.0f, offset, window, v);
  } else if (bias.data != nullptr) {
    if (bias.dtype == DType::f32)
      add_row<DType::f32>(bias, window, v);
    else if (bias.dtype == DType::f16)
      add_row<DType::f16>(bias, window, v);
    else
      add_row<DType::bf16>(bias, window, v);
  }
  if (epilogue.activation == Activation::relu) {
#pragma unroll
    for (float& x : v) x = activate<Activation::relu>(x);
  }
}

// The fast path (Epilogue::fast): unrolled over the fragment, which saves the selection. Without a
// map, all of the columns are whole (whole_columns). s32 results are the accumulators themselves.
template <int kColumns, int kUnit, DType kOut, RowOrder kRowOrder, int kIndex = 0, class Fragment>
__device__ inline void store_fast(const Epilogue& epilogue, const Extent& extent,
                                  const TensorMap* map, char* smem_d, const Fragment* fragment,
                                  int row, int col, int batch) {
  // Columns of a box: 128 bytes.
  constexpr int kBox = 1024 / bits(kOut), kStep = kUnit < kBox ? kUnit : kBox;
  constexpr int kFirst = kIndex * kStep, kInside = kFirst % kBox;
  Value<std::is_same_v<Fragment, std::int32_t> ? DType::s32 : DType::f32> raw[kStep / 2];
  copy_unit<kIndex>(fragment, raw);
  Value<kOut> v[kStep / 2];
#pragma unroll
  for (int i = 0; i < kStep / 2; ++i) v[i] = raw[i];
  const Window window = tile::window<kRowOrder>(extent, row, col + kFirst, batch);
  if constexpr (kOut != DType::s32) finish_fast<kRowOrder>(epilogue, window, v);
  if (kRowOrder == RowOrder::interleaved && map == nullptr) {
    if constexpr (bits(kOut) == 16) store_columns_as<kOut, true>(epilogue, window, v);
  } else {
    if constexpr (bits(kOut) == 32) {
      send_words<kRowOrder>(map, smem_d, row, col + kFirst, batch, kInside, v);
    } else {
      if constexpr (kInside == 0) await_box();
      pack<kOut, true, kRowOrder>(smem_d, kInside / 8, v);
      if constexpr (kInside + kStep == kBox)
        send_box(map, smem_d, row, col + kFirst - kInside, batch);
    }
  }
  if constexpr (kFirst + kStep < kColumns)
    store_fast<kColumns, kUnit, kOut, kRowOrder, kIndex + 1>(epilogue, extent, map, smem_d,
                                                             fragment, row, col, batch);
}

// One unit of the slab, of a result that is narrower than a word.
template <bool kHopper, RowOrder kRowOrder, int kCount>
__device__ inline void pack(DType type, char* smem_d, int chunk, const float (&v)[kCount]) {
  if (type == DType::bf16)
    pack<DType::bf16, kHopper, kRowOrder>(smem_d, chunk, v);
  else if (type == DType::f16)
    pack<DType::f16, kHopper, kRowOrder>(smem_d, chunk, v);
  else if (type == DType::e4m3)
    pack_bytes<DType::e4m3, kRowOrder>(smem_d, chunk, v);
  else if (type == DType::e5m2)
    pack_bytes<DType::e5m2, kRowOrder>(smem_d, chunk, v);
  else
    pack_bytes<DType::s8, kRowOrder>(smem_d, chunk, v);
}

// From the accumulators of a unit to what is rounded: calls store(values), with s32 values for an
// s32 result and floats for every other.
template <int kCount, class Store>
__device__ inline void finish_unit(const Epilogue& epilogue, const Window& window,
                                   float (&v)[kCount], const Store& store) {
  if (epilogue.scaled) scale<false>(epilogue, window, v);
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

// 16 x kColumns accumulators of a warp to the result, from element (row, col) of matrix `batch` on.
// values(unit, v) gives those of a unit. `slab`: kStagingBytes of shared memory, 1024-byte aligned,
// that this warp alone uses. `map`: of the result for TMA, or nullptr; on return its last box may
// still be read from the slab.
template <int kColumns, int kUnit, bool kHopper, class T, RowOrder kRowOrder = RowOrder::native,
          class Values>
__device__ inline void store_rows(const Epilogue& epilogue, const Extent& extent,
                                  const TensorMap* map, char* smem_d, int row, int col, int batch,
                                  const Values& values) {
  constexpr int kBox = kColumns < kBoxColumns ? kColumns : kBoxColumns;
  static_assert(kBox % kUnit == 0);
  if (row >= extent.m) return;
#pragma unroll 1
  for (int unit = 0; unit < kColumns / kUnit; ++unit) {
    const int first = col + unit * kUnit;
    const int inside = unit * kUnit % kBox;
    if (first - inside >= extent.n) break;
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
          send_words<kRowOrder>(map, smem_d, row, first, batch, inside % 32, v);
        else if (kRowOrder == RowOrder::interleaved ||
                 (epilogue.out_vector && moved(window, inside % 32).cols >= max(kUnit, 32)))
          store_words(epilogue, window, v);  // whole boxes
        else
          turn_words<kRowOrder>(epilogue, window, smem_d, inside % 32, v);
      } else {
        if (inside == 0) {
          if constexpr (kHopper)
            await_box();
          else
            __syncwarp();
        }
        if constexpr (!kS32) pack<kHopper, kRowOrder>(epilogue.out_dtype, smem_d, inside / 8, v);
        if (inside + kUnit < kBox) return;
        if (kHopper && map != nullptr) {
          send_box(map, smem_d, row, first - inside, batch);
          return;
        }
        __syncwarp();
        const Window box = moved(window, inside);
        if (bits(epilogue.out_dtype) == 16)
          store_staged<kBox, std::uint16_t>(epilogue, box, smem_d);
        else
          store_staged<kBox, std::uint8_t>(epilogue, box, smem_d);
      }
    });
  }
}

// The same for the fragments of a warp, 16 rows each, one below the other. Rolled up, so that the
// epilogue is compiled once: registers have no index, hence the selection.
template <int kColumns, int kUnit, class T, RowOrder kRowOrder = RowOrder::native, class Register,
          int kFragments, int kRegisters>
__device__ inline void store_fragments(const Epilogue& epilogue, const Extent& extent, char* smem_d,
                                       int row, int col, int batch,
                                       const Register (&fragments)[kFragments][kRegisters]) {
#pragma unroll 1
  for (int i = 0; i < kFragments; ++i) {
    store_rows<kColumns, kUnit, false, T, kRowOrder>(
        epilogue, extent, nullptr, smem_d, row + i * 16, col, batch,
        [&](int unit, T(&v)[kUnit / 2]) {
#pragma unroll
          for (int j = 0; j < kFragments; ++j)
            if (i == j) select<kColumns / kUnit>(fragments[j], unit, v);
        });
  }
}

}  // namespace tcgemm::tile
