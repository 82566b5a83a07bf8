// From a warp's fragment to the result in memory, 16 rows x kUnit columns at a time.
//
// f32 results go straight from registers: two rows of four lanes fill a sector. 16-bit ones are
// turned in 2 KB of shared memory, 16 rows x 64 columns, so that a row leaves in one piece:
//
//   registers --stmatrix--> slab --TMA--> out       Hopper; edges are TMA's affair
//   registers --st.shared-> slab --16-byte or element stores--> out
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/fence.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"
#include "tile/epilogue.cuh"
#include "tile/fragment.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::tile {

__device__ inline std::int64_t out_offset(const Epilogue& epilogue, const Window& window, int row,
                                          int col) {
  return window.batch * epilogue.out_stride_batch + (window.row + row) * epilogue.out_stride_row +
         (window.col + col) * epilogue.out_stride_col;
}

template <int kCount>
__device__ inline void store_f32(const Epilogue& epilogue, const Window& window,
                                 const float (&v)[kCount]) {
  const int row = threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
  const bool whole = epilogue.out_vector && window.cols >= 2 * kCount;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= window.rows) continue;
    float* to =
        static_cast<float*>(epilogue.out) + out_offset(epilogue, window, row + 8 * half, col);
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      const float x = v[4 * j + 2 * half], y = v[4 * j + 2 * half + 1];
      if (whole) {
        *reinterpret_cast<float2*>(to + 8 * j) = {x, y};
      } else {
        if (col + 8 * j < window.cols) to[8 * j * epilogue.out_stride_col] = x;
        if (col + 8 * j + 1 < window.cols) to[(8 * j + 1) * epilogue.out_stride_col] = y;
      }
    }
  }
}

// A unit into the slab, from chunk `chunk` (8 columns each) on.
template <DType kOut, bool kHopper, int kCount>
__device__ inline void pack(char* slab, int chunk, const float (&v)[kCount]) {
  const int lane = threadIdx.x % 32;
  if constexpr (kHopper) {
    // Matrices of one stmatrix: rows 0-7 and 8-15 of 8 columns, then of the next 8.
    const std::uint32_t address = ptx::shared_address(slab);
#pragma unroll
    for (int i = 0; i < kCount / 8; ++i) {
      const float* x = v + 8 * i;
      ptx::stmatrix_x4(address + swizzle128(lane % 16, chunk + 2 * i + lane / 16),
                       ptx::pack<kOut>(x[0], x[1]), ptx::pack<kOut>(x[2], x[3]),
                       ptx::pack<kOut>(x[4], x[5]), ptx::pack<kOut>(x[6], x[7]));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const int row = lane / 4 + i % 2 * 8;
      *reinterpret_cast<std::uint32_t*>(slab + swizzle128(row, chunk + i / 2) + lane % 4 * 4) =
          ptx::pack<kOut>(v[2 * i], v[2 * i + 1]);
    }
  }
}

// kColumns of the slab to memory; `window` is where its first column lies.
template <int kColumns>
__device__ inline void store_slab(const Epilogue& epilogue, const Window& window,
                                  const char* slab) {
  const int lane = threadIdx.x % 32;
  auto* out = static_cast<std::uint16_t*>(epilogue.out);
  if (epilogue.out_vector && window.cols >= kColumns) {
    constexpr int kLanes = kColumns / 8;
#pragma unroll
    for (int row = lane / kLanes; row < kBoxRows; row += 32 / kLanes) {
      const int chunk = lane % kLanes;
      if (row < window.rows)
        *reinterpret_cast<uint4*>(out + out_offset(epilogue, window, row, 8 * chunk)) =
            *reinterpret_cast<const uint4*>(slab + swizzle128(row, chunk));
    }
    return;
  }
#pragma unroll 1
  for (int col = lane; col < min(kColumns, window.cols); col += 32) {
    std::int64_t offset = out_offset(epilogue, window, 0, col);
#pragma unroll 4
    for (int row = 0; row < kBoxRows; ++row, offset += epilogue.out_stride_row) {
      if (row < window.rows)
        out[offset] =
            *reinterpret_cast<const std::uint16_t*>(slab + swizzle128(row, col / 8) + col % 8 * 2);
    }
  }
}

// What is packed in the slab leaves as one box.
__device__ inline void send_box(const TensorMap* map, const char* slab, int row, int col,
                                int batch) {
  ptx::fence_proxy_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::tma_store(map, ptx::shared_address(slab), col, row, batch);
}

// Until the slab may be written again.
__device__ inline void await_box() {
  if (threadIdx.x % 32 == 0) ptx::tma_store_wait_read();
  __syncwarp();
}

template <int kFirst, class Fragment, int kCount>
__device__ inline void copy_unit(const Fragment* fragment, float (&v)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount / 2; ++j) {
    const float2 x = pair(fragment, kFirst * (kCount / 4) + j / 2, j % 2);
    v[2 * j] = x.x;
    v[2 * j + 1] = x.y;
  }
}

// The unit-th unit of a fragment in registers. Registers have no index: the caller's loop over
// units stays rolled, and this one selects.
template <int kUnits, class Fragment, int kCount, int kUnit = 0>
__device__ inline void select(const Fragment* fragment, int unit, float (&v)[kCount]) {
  if (kUnit == unit) copy_unit<kUnit>(fragment, v);
  if constexpr (kUnit + 1 < kUnits) select<kUnits, Fragment, kCount, kUnit + 1>(fragment, unit, v);
}

// bias, one row for all, onto a unit, which may reach past the matrix by whole words.
template <DType kType, int kCount>
__device__ inline void add_row(const Source& bias, const Window& window, float (&v)[kCount]) {
  const int col = threadIdx.x % 4 * 2;
  const std::int64_t offset = window.batch * bias.stride_batch + window.col + col;
  float2 pairs[kCount / 4] = {};
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j)
    if (8 * j < window.cols) pairs[j] = load_pair<kType>(bias.data, offset + 8 * j);
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] += i % 2 == 0 ? pairs[i / 4].x : pairs[i / 4].y;
}

// The fast path (Epilogue::fast): unrolled over the fragment, which saves the selection.
template <int kColumns, int kUnit, DType kOut, int kIndex = 0, class Fragment>
__device__ inline void store_fast(const Epilogue& epilogue, const Extent& extent,
                                  const TensorMap* map, char* slab, const Fragment* fragment,
                                  int row, int col, int batch) {
  constexpr int kFirst = kIndex * kUnit, kInside = kFirst % kBoxColumns;
  float v[kUnit / 2];
  copy_unit<kIndex>(fragment, v);
  const Source& bias = epilogue.sources[kBias];
  if (bias.data != nullptr) {
    const Window window = tile::window(extent, row, col + kFirst, batch);
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
  if constexpr (kInside == 0) await_box();
  pack<kOut, true>(slab, kInside / 8, v);
  if constexpr (kInside + kUnit == kBoxColumns)
    send_box(map, slab, row, col + kFirst - kInside, batch);
  if constexpr (kFirst + kUnit < kColumns)
    store_fast<kColumns, kUnit, kOut, kIndex + 1>(epilogue, extent, map, slab, fragment, row, col,
                                                  batch);
}

// 16 x kColumns accumulators of a warp to the result, from element (row, col) of matrix `batch` on.
// values(unit, v) gives those of a unit. `slab`: kSlabBytes of shared memory, 1024-byte aligned,
// that this warp alone uses. `map`: of the result for TMA, or nullptr; on return its last box may
// still be read from the slab.
template <int kColumns, int kUnit, bool kHopper, class Values>
__device__ inline void store_rows(const Epilogue& epilogue, const Extent& extent,
                                  const TensorMap* map, char* slab, int row, int col, int batch,
                                  const Values& values) {
  constexpr int kBox = kColumns < kBoxColumns ? kColumns : kBoxColumns;
  static_assert(kBox % kUnit == 0);
  if (row >= extent.m) return;
#pragma unroll 1
  for (int unit = 0; unit < kColumns / kUnit; ++unit) {
    const int first = col + unit * kUnit;
    const int inside = unit * kUnit % kBox;
    if (first - inside >= extent.n) break;
    float v[kUnit / 2];
    values(unit, v);
#pragma unroll
    for (int i = 0; i < kUnit / 2; ++i) v[i] *= epilogue.alpha;
    const Window window = tile::window(extent, row, first, batch);
    if (epilogue.options) finish(epilogue, window, v);
    if (epilogue.out_dtype == DType::f32) {
      store_f32(epilogue, window, v);
      continue;
    }

    if (inside == 0) {
      if constexpr (kHopper)
        await_box();
      else
        __syncwarp();
    }
    if (epilogue.out_dtype == DType::bf16)
      pack<DType::bf16, kHopper>(slab, inside / 8, v);
    else
      pack<DType::f16, kHopper>(slab, inside / 8, v);
    if (inside + kUnit < kBox) continue;
    if constexpr (kHopper) {
      if (map != nullptr) {
        send_box(map, slab, row, first - inside, batch);
        continue;
      }
    }
    __syncwarp();
    store_slab<kBox>(epilogue, tile::window(extent, row, first - inside, batch), slab);
  }
}

}  // namespace tcgemm::tile
