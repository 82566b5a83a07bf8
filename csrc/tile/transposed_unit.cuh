// A warp's part of a buffer of tile/tma_store_columns.cuh, for fragments with RowOrder::native: 16
// rows x 32 columns of 16 or 8 bits, or x 16 columns of 32 bits, transposed.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/shared.cuh"
#include "tile/epilogue.cuh"
#include "tile/scale.cuh"
#include "tile/swizzle.cuh"
#include "tile/tma_store_columns.cuh"

namespace tcgemm::tile {

// A column of the 16 rows is two vectors of 16 bytes in the row of the buffer that has the column
// of all 64 rows of the warpgroup. Each lane has the address of one vector in 16 columns:
//
//   lanes 0-7    rows 0-7 of columns 0-7        lanes 16-23   rows 0-7 of columns 8-15
//   lanes 8-15   rows 8-15 of columns 0-7       lanes 24-31   rows 8-15 of columns 8-15
//
// For stmatrix and ldmatrix it is a row of an 8x8 matrix, whose columns are transposed. For loads
// and stores of 16 bytes it is the vector of the lane. Neither has bank conflicts: eight lanes with
// one chunk of the row have eight columns, and the swizzle puts these into different banks.
class TransposedUnit {
 public:
  // buffer: of the warpgroup. column: of the unit in the buffer, a multiple of 8.
  __device__ __forceinline__ TransposedUnit(const char* buffer, int column)
      : address_(ptx::shared_address(buffer) + column * 128 +
                 swizzle128(lane_column(), threadIdx.x / 32 % 4 * 2 + lane_half())) {}

  // The place of this lane's vector: a column of 16, and half 0 or 1 of its rows.
  __device__ __forceinline__ static int lane_column() {
    return threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8;
  }
  __device__ __forceinline__ static int lane_half() { return threadIdx.x % 16 / 8; }

  // Writes the words of a lane: word 2 j + half has its pair of columns in block j of 8 columns.
  template <int kWords>
  __device__ __forceinline__ void write(const std::uint32_t (&words)[kWords]) const {
    static_assert(kWords % 4 == 0);
#pragma unroll
    for (int i = 0; i < kWords; i += 4)
      ptx::stmatrix_x4<true>(at(4 * i), words[i], words[i + 1], words[i + 2], words[i + 3]);
  }

  // Reads these words.
  template <int kWords>
  __device__ __forceinline__ void read(std::uint32_t (&words)[kWords]) const {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      std::uint32_t four[4];
      ptx::ldmatrix_x4<true>(four, at(4 * i));
#pragma unroll
      for (int j = 0; j < 4; ++j) words[i + j] = four[j];
    }
  }

  // The lane's vector of the 16 columns from `column` of the unit on.
  __device__ __forceinline__ std::uint32_t at(int column) const { return address_ + column * 128; }

 private:
  std::uint32_t address_;
};

// The c or residual of a unit of 16 rows x kUnit columns, whose columns are vectors. A lane loads
// vectors of a column; exchange() then gives it its pairs of columns.
template <int kUnit>
struct TransposedAddend {
  std::uint32_t words[kUnit / 4] = {};

  // The part of the unit that is inside of the matrix; the rest stays zero. The number of rows is a
  // multiple of 8.
  __device__ __forceinline__ void load(const TensorRef& source, const Window& window) {
    const int row = 8 * TransposedUnit::lane_half();
    if (row >= window.rows) return;
    const auto* first = static_cast<const std::uint16_t*>(source.data) +
                        window.batch * source.stride_batch + window.row + row;
#pragma unroll
    for (int i = 0; i < kUnit / 16; ++i) {
      const int column = 16 * i + TransposedUnit::lane_column();
      if (column >= window.cols) continue;
      const uint4 vector =
          *reinterpret_cast<const uint4*>(first + (window.col + column) * source.stride_col);
      words[4 * i] = vector.x;
      words[4 * i + 1] = vector.y;
      words[4 * i + 2] = vector.z;
      words[4 * i + 3] = vector.w;
    }
  }

  // The unit may be overwritten after it.
  __device__ __forceinline__ void exchange(const TransposedUnit& unit) {
#pragma unroll
    for (int i = 0; i < kUnit / 4; i += 4)
      ptx::store_shared_vector(unit.at(4 * i),
                               {words[i], words[i + 1], words[i + 2], words[i + 3]});
    __syncwarp();
    unit.read(words);
    __syncwarp();
  }

  // v += factor * addend, after exchange().
  __device__ __forceinline__ void add_to(float (&v)[kUnit / 2], float factor, DType type) const {
    const bool is_f16 = type == DType::f16;
#pragma unroll
    for (int i = 0; i < kUnit / 4; ++i) {
      const float2 values = is_f16 ? ptx::unpack_f16(words[i]) : ptx::unpack_bf16(words[i]);
      v[2 * i] = add_product(v[2 * i], factor, values.x);
      v[2 * i + 1] = add_product(v[2 * i + 1], factor, values.y);
    }
  }
};

// The words of a lane, as TransposedUnit has them.
template <DType kOut, int kCount>
__device__ __forceinline__ void pack_words(const float (&v)[kCount],
                                           std::uint32_t (&words)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) words[i] = ptx::pack<kOut>(v[2 * i], v[2 * i + 1]);
}

// Stores the argument of the activation (Epilogue::z), whose columns are vectors. The unit may be
// overwritten after it.
template <DType kOut, int kCount>
__device__ __forceinline__ void store_z_transposed(const Epilogue& epilogue, const Window& window,
                                                   const TransposedUnit& unit,
                                                   const float (&v)[kCount]) {
  std::uint32_t words[kCount / 2];
  pack_words<kOut>(v, words);
  unit.write(words);
  __syncwarp();
  const int row = 8 * TransposedUnit::lane_half();
  auto* first = static_cast<std::uint16_t*>(epilogue.z) + window.batch * epilogue.z_stride_batch +
                window.row + row;
#pragma unroll
  for (int i = 0; i < kCount / 8; ++i) {
    const int column = 16 * i + TransposedUnit::lane_column();
    const uint4 vector = ptx::load_shared_vector(unit.at(16 * i));
    if (row < window.rows && column < window.cols)
      *reinterpret_cast<uint4*>(first + (window.col + column) * epilogue.z_pitch) = vector;
  }
  __syncwarp();
}

// Writes a unit of results of 8 bits. A column of the 16 rows is one vector, in a row of 64 bytes.
// column: of the unit in the buffer, a multiple of 16.
//
// stmatrix transposes elements of 16 bits, so it gets pairs of columns. A lane then reads a pair of
// 16 rows from the second half of the buffer, keeps one column, and writes it to the first half:
//
//   word 2 b + half of a lane        columns 16 b + 2 t, + 1, 16 b + 2 t + 8, + 9 of its row
//   matrix 2 b + half, row 2 t + s   columns 16 b + 2 t + 8 s, + 1 of rows 8 half to 8 half + 7
template <DType kOut, int kCount>
__device__ __forceinline__ void write_transposed_bytes(char* buffer, int column,
                                                       const float (&v)[kCount]) {
  constexpr int kWords = kCount / 4;
  static_assert(bits(kOut) == 8 && (kWords == 2 || kWords == 4));
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float* pairs = v + i % kWords / 2 * 8 + i % 2 * 2;
    words[i] = pack_8bit_pair<kOut>(pairs[0], pairs[1]) |
               std::uint32_t(pack_8bit_pair<kOut>(pairs[4], pairs[5])) << 16;
  }
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const std::uint32_t bytes = ptx::shared_address(buffer);
  const std::uint32_t pairs = bytes + kWarpgroupRows * kStoreColumns + warp * 512;
  // Of 16 columns the second two matrices are the first ones again, and nobody reads them.
  ptx::stmatrix_x4<true>(pairs + lane * 16, words[0], words[1], words[2], words[3]);
  __syncwarp();
  const int block = lane / 16, s = lane / 8 % 2, t = lane / 2 % 4, second = lane % 2;
  const std::uint32_t from = pairs + block * 256 + (2 * t + s) * 16;
  const uint4 low = ptx::load_shared_vector(from), high = ptx::load_shared_vector(from + 128);
  const std::uint32_t selectors = second ? 0x7531 : 0x6420;
  const uint4 rows = {__byte_perm(low.x, low.y, selectors), __byte_perm(low.z, low.w, selectors),
                      __byte_perm(high.x, high.y, selectors),
                      __byte_perm(high.z, high.w, selectors)};
  if (kWords == 4 || block == 0)
    ptx::store_shared_vector(bytes + swizzle64(column + 16 * block + 8 * s + 2 * t + second, warp),
                             rows);
  __syncwarp();
}

// Writes a unit of f32 results, 16 columns. There are no bank conflicts: the lanes write two
// vectors of four columns, and the swizzle puts these into different banks.
__device__ __forceinline__ void write_transposed_words(char* buffer, const float (&v)[8]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = threadIdx.x / 32 % 4 * 16 + lane / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    *reinterpret_cast<float*>(buffer + row / 32 * (kBufferBytes / 2) +
                              swizzle128(column, row % 32 / 4) + row % 4 * 4) = v[i];
  }
}

// The column of a lane's value i in a unit.
__device__ __forceinline__ int transposed_column(int i) {
  return i / 4 * 8 + int(threadIdx.x) % 4 * 2 + i % 2;
}

// The element of a lane's value i of a unit whose columns are contiguous. Eight lanes have 32 bytes
// of a column, one sector.
__device__ __forceinline__ std::int64_t transposed_offset(const Window& window, int i,
                                                          std::int64_t stride_batch,
                                                          std::int64_t stride_col) {
  return window.batch * stride_batch + window.row + window.lane_rows[i / 2 % 2] +
         (window.col + transposed_column(i)) * stride_col;
}
__device__ __forceinline__ bool is_inside(const Window& window, int i) {
  return window.holds(i / 2 % 2) && transposed_column(i) < window.cols;
}

// The c or residual of f32 of such a unit.
struct TransposedWideAddend {
  float values[8] = {};

  __device__ __forceinline__ void load(const TensorRef& source, const Window& window) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (is_inside(window, i))
        values[i] = static_cast<const float*>(
            source.data)[transposed_offset(window, i, source.stride_batch, source.stride_col)];
  }

  __device__ __forceinline__ void add_to(float (&v)[8], float factor, DType) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = add_product(v[i], factor, values[i]);
  }
};

// Stores the argument of the activation (Epilogue::z) of such a unit.
__device__ __forceinline__ void store_wide_z_transposed(const Epilogue& epilogue,
                                                        const Window& window, const float (&v)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (is_inside(window, i))
      static_cast<float*>(
          epilogue.z)[transposed_offset(window, i, epilogue.z_stride_batch, epilogue.z_pitch)] =
          v[i];
}

}  // namespace tcgemm::tile
