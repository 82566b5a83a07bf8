// From accumulators to the result: activation(alpha * acc + beta * c + bias) + residual, rounded
// once.
//
// Options and types are run-time parameters: one rolled loop serves them all, at a tenth of the
// size of code unrolled over the accumulators. A warp turns its 16 rows through 2 KB of shared
// memory of its own, 32 columns of f32 at a time, so that a lane then holds neighbours of one row:
//
//   fragment (2 columns x 2 rows a lane, see fragment.cuh)
//      -> slab 16 x 32 f32, swizzled -> 8 columns a lane -> options -> 16-byte stores
//                                    -> 1 column a lane  -> options -> any alignment and stride
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "core/params.h"
#include "ptx/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::tile {

inline constexpr int kSlabColumns = 32;

// Comparisons let NaN through, as torch's activations do.
__device__ inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::relu:
      return x < 0.0f ? 0.0f : x;
    case Activation::gelu:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case Activation::gelu_tanh:
      return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case Activation::silu:
      return x / (1.0f + expf(-x));
    default:
      return x;
  }
}

__device__ inline float load_element(const Source& source, std::int64_t offset) {
  if (source.dtype == DType::f32) return static_cast<const float*>(source.data)[offset];
  if (source.dtype == DType::f16)
    return __half2float(static_cast<const __half*>(source.data)[offset]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(source.data)[offset]);
}

// kCount 16-bit elements as one word of memory.
template <int kCount>
struct alignas(2 * kCount) Pairs {
  std::uint32_t pair[kCount / 2];
};

// kCount neighbours of a row; those past `valid` are not read.
template <int kCount>
__device__ inline void load(const Source& source, std::int64_t offset, int valid,
                            float (&values)[kCount]) {
  if (source.stride_col == 0) {
    const float value = load_element(source, offset);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = value;
    return;
  }
  if constexpr (kCount > 1) {
    if (source.vector && valid >= kCount) {
      if (source.dtype == DType::f32) {
        const float* from = static_cast<const float*>(source.data) + offset;
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const float4 word = *reinterpret_cast<const float4*>(from + i);
          values[i] = word.x, values[i + 1] = word.y, values[i + 2] = word.z,
          values[i + 3] = word.w;
        }
      } else {
        const Pairs<kCount> word = *reinterpret_cast<const Pairs<kCount>*>(
            static_cast<const std::uint16_t*>(source.data) + offset);
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) {
          const float2 two = source.dtype == DType::f16 ? ptx::unpack_f16(word.pair[i])
                                                        : ptx::unpack_bf16(word.pair[i]);
          values[2 * i] = two.x, values[2 * i + 1] = two.y;
        }
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < valid) values[i] = load_element(source, offset + i * source.stride_col);
}

__device__ inline void store_element(const Epilogue& epilogue, std::int64_t offset, float value) {
  if (epilogue.out_dtype == DType::f32)
    static_cast<float*>(epilogue.out)[offset] = value;
  else if (epilogue.out_dtype == DType::f16)
    static_cast<__half*>(epilogue.out)[offset] = __float2half_rn(value);
  else
    static_cast<__nv_bfloat16*>(epilogue.out)[offset] = __float2bfloat16_rn(value);
}

// kCount neighbours of a row, from the accumulator to memory.
template <int kCount>
__device__ inline void finish(const Epilogue& epilogue, float (&x)[kCount], std::int64_t row,
                              std::int64_t col, std::int64_t batch, int valid) {
  const auto offset = [&](const Source& source) {
    return batch * source.stride_batch + row * source.stride_row + col * source.stride_col;
  };
  float source[kCount] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] *= epilogue.alpha;
  if (epilogue.c.data != nullptr) {
    load(epilogue.c, offset(epilogue.c), valid, source);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += epilogue.beta * source[i];
  }
  if (epilogue.bias.data != nullptr) {
    load(epilogue.bias, offset(epilogue.bias), valid, source);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += source[i];
  }
  if (epilogue.activation != Activation::none) {
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) {
      // A rotation instead of an index keeps the values in registers in a loop that is not
      // unrolled.
      const float done = activate(epilogue.activation, x[0]);
#pragma unroll
      for (int j = 0; j + 1 < kCount; ++j) x[j] = x[j + 1];
      x[kCount - 1] = done;
    }
  }
  if (epilogue.residual.data != nullptr) {
    load(epilogue.residual, offset(epilogue.residual), valid, source);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += source[i];
  }

  const std::int64_t out = batch * epilogue.out_stride_batch + row * epilogue.out_stride_row +
                           col * epilogue.out_stride_col;
  if constexpr (kCount > 1) {
    if (valid >= kCount) {
      if (epilogue.out_dtype == DType::f32) {
        float* to = static_cast<float*>(epilogue.out) + out;
#pragma unroll
        for (int i = 0; i < kCount; i += 4)
          *reinterpret_cast<float4*>(to + i) = {x[i], x[i + 1], x[i + 2], x[i + 3]};
      } else {
        Pairs<kCount> word;
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i)
          word.pair[i] = epilogue.out_dtype == DType::f16
                             ? ptx::pack<DType::f16>(x[2 * i], x[2 * i + 1])
                             : ptx::pack<DType::bf16>(x[2 * i], x[2 * i + 1]);
        *reinterpret_cast<Pairs<kCount>*>(static_cast<std::uint16_t*>(epilogue.out) + out) = word;
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < valid) store_element(epilogue, out + i * epilogue.out_stride_col, x[i]);
}

// What lies in the slab: 16 x 32 elements from (row, col) on. kWide columns a lane where the result
// can be written in words, else one.
template <int kWide>
__device__ inline void finish_slab(const Epilogue& epilogue, const Extent& extent, const char* slab,
                                   int row, int col, int batch) {
  constexpr int kLanes = kSlabColumns / kWide;  // of one row
  const int lane = threadIdx.x % 32;
  if (epilogue.out_vector) {
#pragma unroll 1
    for (int i = lane / kLanes; i < 16; i += 32 / kLanes) {
      const int j = lane % kLanes * kWide;
      float x[kWide];
#pragma unroll
      for (int word = 0; word < kWide; word += 4) {
        const float4 four = *reinterpret_cast<const float4*>(slab + swizzle128(i, (j + word) / 4));
        x[word] = four.x, x[word + 1] = four.y, x[word + 2] = four.z, x[word + 3] = four.w;
      }
      if (row + i < extent.m && col + j < extent.n)
        finish(epilogue, x, row + i, col + j, batch, extent.n - col - j);
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < 16; ++i) {
      float x[1] = {*reinterpret_cast<const float*>(slab + swizzle128(i, lane / 4) + lane % 4 * 4)};
      if (row + i < extent.m && col + lane < extent.n)
        finish(epilogue, x, row + i, col + lane, batch, 1);
    }
  }
}

// One warp's 16 x kColumns fragment to the result, from element (row, col) of matrix `batch` on.
// `slab`: 2 KB of shared memory, 1024-byte aligned, that this warp alone uses. kWide: 8, or 4 where
// registers are short.
template <int kColumns, int kWide, class Fragment>
__device__ inline void store_fragment(const Epilogue& epilogue, const Extent& extent, char* slab,
                                      const Fragment* fragment, int row, int col, int batch) {
  const int lane = threadIdx.x % 32;
  if (row >= extent.m) return;
#pragma unroll 1
  for (int chunk = 0; chunk < kColumns / kSlabColumns; ++chunk) {
    if (col + chunk * kSlabColumns >= extent.n) break;
    __syncwarp();
    // Registers have no index: the loop over chunks stays rolled, and this one selects.
#pragma unroll
    for (int i = 0; i < kColumns / kSlabColumns; ++i) {
      if (i != chunk) continue;
#pragma unroll
      for (int block = 0; block < kSlabColumns / 8; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = swizzle128(lane / 4 + 8 * half, 2 * block + lane % 4 / 2) + lane % 2 * 8;
          *reinterpret_cast<float2*>(slab + at) =
              pair(fragment, i * (kSlabColumns / 8) + block, half);
        }
      }
    }
    __syncwarp();
    finish_slab<kWide>(epilogue, extent, slab, row, col + chunk * kSlabColumns, batch);
  }
}

}  // namespace tcgemm::tile
