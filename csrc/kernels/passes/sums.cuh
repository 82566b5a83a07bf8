// Sums of integers of at most 8 bits along k, modulo 2^32. The zero points of the other operand
// multiply them; sums of bits are the numbers of ones.
#pragma once

#include <cstdint>

#include "core/params.h"
#include "kernels/kernels.h"
#include "kernels/passes/transpose.cuh"
#include "kernels/passes/vector_reader.cuh"
#include "ptx/dependent.cuh"

namespace tcgemm::passes {

// The work for each major:
//
//   K-major   One warp sums a row with 16-byte loads; a dp4a adds four elements.
//   MN-major  One CTA sums 32 rows. A thread loads 16 rows of four elements of k and transposes
//             them (transpose.cuh), so that dp4a adds them as well. The threads reduce at the end.
//
// With any other strides the smaller one decides the major, and a load reads one element. Sub-byte
// elements are K-major; a load reads the elements of a byte.

using kernels::kSumThreads;
inline constexpr int kSumWarps = kSumThreads / 32;  // rows of a CTA, K-major
inline constexpr int kSumRows = 2 * kVectorBytes;   // rows of a CTA, MN-major
inline constexpr int kSumGroups = kSumThreads / 2;  // of four elements of k, loaded at once

constexpr bool is_mn_major(const SumParams& params) {
  return !is_subbyte(params.source.dtype) && params.source.stride_col != 1 &&
         params.source.stride_row < params.source.stride_col;
}

constexpr std::int64_t sum_units(const SumParams& params) {
  return is_mn_major(params) ? (params.rows + kSumRows - 1) / kSumRows * params.batch
                             : (params.rows * params.batch + kSumWarps - 1) / kSumWarps;
}

// Adds the elements of four bytes, or of one. s8 with its sign bit inverted is u8 and 128 larger.
// So one unsigned dp4a adds both types, and `bias` per added byte is subtracted afterwards.
struct ByteAdder {
  static constexpr bool kSubbyte = false;
  std::uint32_t sign_bits, bias;

  __device__ explicit ByteAdder(DType type)
      : sign_bits(type == DType::s8 ? 0x80808080u : 0), bias(type == DType::s8 ? 128 : 0) {}

  __device__ std::uint32_t add(std::uint32_t bytes, std::uint32_t sum) const {
    return __dp4a(bytes ^ sign_bits, 0x01010101u, sum);
  }
  __device__ std::uint32_t load(const char* address) const {
    return (*reinterpret_cast<const std::uint8_t*>(address) ^ (sign_bits & 255)) - bias;
  }
};

// The same of s4 and u4: two in a byte. An s4 with its sign bit inverted is 8 larger.
struct Int4Adder {
  static constexpr bool kSubbyte = true;
  std::uint32_t sign_bits, bias;

  __device__ explicit Int4Adder(DType type)
      : sign_bits(type == DType::s4 ? 0x88888888u : 0), bias(type == DType::s4 ? 16 : 0) {}

  __device__ std::uint32_t add(std::uint32_t bytes, std::uint32_t sum) const {
    bytes ^= sign_bits;
    sum = __dp4a(bytes & 0x0f0f0f0fu, 0x01010101u, sum);
    return __dp4a(bytes >> 4 & 0x0f0f0f0fu, 0x01010101u, sum);
  }
  __device__ std::uint32_t load(const char* address) const {
    const std::uint32_t byte = *reinterpret_cast<const std::uint8_t*>(address) ^ (sign_bits & 255);
    return (byte & 15) + (byte >> 4) - bias;
  }
};

// The ones among bits.
struct BitAdder {
  static constexpr bool kSubbyte = true;
  static constexpr std::uint32_t bias = 0;

  __device__ explicit BitAdder(DType) {}

  __device__ std::uint32_t add(std::uint32_t bytes, std::uint32_t sum) const {
    return sum + __popc(bytes);
  }
  __device__ std::uint32_t load(const char* address) const {
    return __popc(*reinterpret_cast<const std::uint8_t*>(address));
  }
};

// Writes the sum of a row.
__device__ inline void store_sum(const SumParams& params, std::int64_t index, std::uint32_t sum) {
  params.sums[index] = static_cast<std::int32_t>(sum * params.factor + params.addend);
}

__device__ inline std::uint32_t warp_sum(std::uint32_t sum, int from, int to) {
  for (int distance = from; distance < to; distance *= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

// Returns this lane's sum of a contiguous row: whole vectors, and the bytes before and after them.
template <class Adder>
__device__ inline std::uint32_t sum_contiguous(const char* row, std::int64_t k,
                                               const Adder& adder) {
  const int lane = threadIdx.x % 32;
  const std::uint64_t policy = ptx::evict_first();
  const int shift = reinterpret_cast<std::uintptr_t>(row) % kVectorBytes;
  const std::int64_t head = min(k, std::int64_t((kVectorBytes - shift) % kVectorBytes));
  const std::int64_t vectors = (k - head) / kVectorBytes, tail = head + vectors * kVectorBytes;
  std::uint32_t sum = 0;
  if (lane < head) sum += adder.load(row + lane);
  if (lane < k - tail) sum += adder.load(row + tail + lane);
#pragma unroll 4
  for (std::int64_t i = lane; i < vectors; i += 32) {
    const uint4 vector = ptx::load(row + head + i * kVectorBytes, policy);
    sum = adder.add(vector.w, adder.add(vector.z, adder.add(vector.y, adder.add(vector.x, sum))));
    sum -= kVectorBytes * adder.bias;
  }
  return sum;
}

template <class Adder>
__device__ inline void sum_k_major(const SumParams& params, std::int64_t unit) {
  const TensorRef& source = params.source;
  const std::int64_t index = unit * kSumWarps + threadIdx.x / 32;
  if (index >= params.rows * params.batch) return;
  const Adder adder(source.dtype);
  const int lane = threadIdx.x % 32;
  const std::int64_t batch = index / params.rows, row = index - batch * params.rows;
  const char* from =
      static_cast<const char*>(source.data) + batch * source.stride_batch + row * source.stride_row;
  std::uint32_t sum = 0;
  if (source.stride_col == 1) {
    sum = sum_contiguous(from, params.k, adder);
  } else {
#pragma unroll 4
    for (std::int64_t k = lane; k < params.k; k += 32)
      sum += adder.load(from + k * source.stride_col);
  }
  sum = warp_sum(sum, 1, 32);
  if (lane == 0) store_sum(params, index, sum);
}

__device__ inline void sum_mn_major(const SumParams& params, std::int64_t unit,
                                    std::uint32_t (&shared)[kSumWarps][kSumRows]) {
  const TensorRef& source = params.source;
  const ByteAdder adder(source.dtype);
  const std::int64_t units_per_matrix = (params.rows + kSumRows - 1) / kSumRows;
  const std::int64_t batch = unit / units_per_matrix;
  const std::int64_t row = (unit - batch * units_per_matrix) * kSumRows;
  const std::int64_t left = params.rows - row;
  VectorReader<1> reader;
  reader.source =
      static_cast<const char*>(source.data) + batch * source.stride_batch + row * source.stride_row;
  reader.stride_ld_row = source.stride_col;
  reader.stride_element = source.stride_row;
  reader.ld_rows = static_cast<int>(params.k);
  reader.begin = row == 0 ? 0 : -kVectorBytes;
  reader.end = static_cast<int>(min(left, std::int64_t(kSumRows + kVectorBytes)));
  reader.examine(reader.ld_rows, kSumRows);
  const bool inside = reader.inside;

  const int group = threadIdx.x / 2, column = threadIdx.x % 2;
  std::uint32_t sums[kVectorBytes] = {};
#pragma unroll 1
  for (int first = group * kRowsPerThread; first < reader.ld_rows;
       first += kSumGroups * kRowsPerThread) {
    uint4 vectors[kRowsPerThread];
    std::uint32_t columns[kVectorBytes][1];
    reader.inside = inside && first + kRowsPerThread <= reader.ld_rows;
    reader.read(first, column, ptx::evict_first(), vectors);
    transpose<1, 1>(vectors, columns);
#pragma unroll
    for (int i = 0; i < kVectorBytes; ++i)
      sums[i] = adder.add(columns[i][0], sums[i]) - kRowsPerThread * adder.bias;
  }
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < kVectorBytes; ++i) {
    const std::uint32_t sum = warp_sum(sums[i], 2, 32);
    if (threadIdx.x % 32 < 2) shared[warp][column * kVectorBytes + i] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kSumRows && threadIdx.x < left) {
    std::uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kSumWarps; ++i) sum += shared[i][threadIdx.x];
    store_sum(params, batch * params.rows + row + threadIdx.x, sum);
  }
  __syncthreads();  // the next unit overwrites `shared`
}

template <class Adder>
__global__ void __launch_bounds__(kSumThreads, 3)
    sum_along_k(const __grid_constant__ SumParams params) {
  [[maybe_unused]] __shared__ std::uint32_t shared[kSumWarps][kSumRows];
  ptx::launch_dependents();
  ptx::wait_for_prerequisites();
  for (std::int64_t unit = blockIdx.x; unit < sum_units(params); unit += gridDim.x) {
    if constexpr (!Adder::kSubbyte) {
      if (is_mn_major(params)) {
        sum_mn_major(params, unit, shared);
        continue;
      }
    }
    sum_k_major<Adder>(params, unit);
  }
}

}  // namespace tcgemm::passes
