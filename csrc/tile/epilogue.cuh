// The epilogue's arithmetic between the accumulators and the rounding: see Epilogue in
// core/params.h. docs/dev/kernels/epilogue.md says why its code is small.
#pragma once

#include <cstdint>
#include <type_traits>

#include "catalog.h"
#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/fma.cuh"
#include "ptx/prefetch.cuh"
#include "tile/activation.cuh"

namespace tcgemm::tile {

// A warp processes a unit of 16 rows x kUnit columns at a time, in fragment registers
// (fragment.cuh). v[4 j + 2 half + i] is row lane_rows[half] of the lane, column 8 j + 2 (lane % 4)
// + i of the unit. Window has the rows of a lane: lane / 4 and lane / 4 + 8 in most kernels.
//
// Activations, types and strides are run-time parameters, and each kernel compiles this code once.
// A unit loads all of an operand before it uses any of it, and its values are independent
// dependency chains: eight warps do not hide the latency of memory.

// The two of a warp's 16 rows that a lane of group g = lane / 4 holds. native: rows g and g + 8,
// the fragment layout of the MMA instructions. interleaved: the adjacent rows 2 g and 2 g + 1,
// because the mainloop loads a in that order.
enum class RowOrder : std::uint8_t { native, interleaved };

// The row of the result that is row `row` of a fragment.
template <RowOrder kRowOrder>
__device__ constexpr int row_of(int row) {
  return kRowOrder == RowOrder::native ? row : row % 8 * 2 + row / 8;
}

// The position of a unit in the result. `rows` and `cols` are the extents from there to the end of
// the matrix.
struct Window {
  std::int64_t row, col, batch;
  int rows, cols;
  int lane_rows[2];  // rows of this lane, relative to `row`

  __device__ bool holds(int half) const { return lane_rows[half] < rows; }
  // A compile-time constant after inlining: see RowOrder.
  __device__ bool interleaved() const { return lane_rows[1] == lane_rows[0] + 1; }
};

template <RowOrder kRowOrder = RowOrder::native>
__device__ inline Window window(const Extent& extent, int row, int col, int batch) {
  const int group = threadIdx.x % 32 / 4;
  return {row,
          col,
          batch,
          extent.m - row,
          extent.n - col,
          {row_of<kRowOrder>(group), row_of<kRowOrder>(group + 8)}};
}

__device__ inline std::int64_t out_offset(const Epilogue& epilogue, const Window& window, int row,
                                          int col) {
  return window.batch * epilogue.out_stride_batch + (window.row + row) * epilogue.out_stride_row +
         (window.col + col) * epilogue.out_stride_col;
}

// x * y, rounded by itself. The compiler contracts a product and the sum that follows into one FMA
// where both are in one block of code, so two epilogues would round differently.
__device__ inline float product(float x, float y) { return __fmul_rn(x, y); }
__device__ inline double product(double x, double y) { return __dmul_rn(x, y); }

// Moves the first kStep values to the end. Registers have no dynamic index, which would put the
// array in local memory; so a rolled loop processes the first values and rotates the array.
template <int kStep, class T, int kCount>
__device__ inline void rotate(T (&v)[kCount]) {
  T first[kStep];
#pragma unroll
  for (int i = 0; i < kStep; ++i) first[i] = v[i];
#pragma unroll
  for (int i = 0; i + kStep < kCount; ++i) v[i] = v[i + kStep];
#pragma unroll
  for (int i = 0; i < kStep; ++i) v[kCount - kStep + i] = first[i];
}

template <int kChains, class Activate, class T, int kCount>
__device__ inline void activate_all(const Activate& activate, T (&v)[kCount]) {
  static_assert(kCount % kChains == 0);
#pragma unroll 1
  for (int i = 0; i < kCount; i += kChains) {
#pragma unroll
    for (int j = 0; j < kChains; ++j) v[j] = activate(v[j]);
    rotate<kChains>(v);
  }
}

// The same without a loop. `kNarrow`: the results have at most 16 bits.
template <Activation kActivation, bool kNarrow, int kCount>
__device__ inline void activate_each(float (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    v[i] = kNarrow ? activate_16bit<kActivation>(v[i]) : activate<kActivation>(v[i]);
}

// The activation is chosen outside the loops: inside, every value would have its own branch.
// `narrow`: the results have at most 16 bits.
template <int kCount>
__device__ inline void activate_all(Activation activation, bool narrow, float (&v)[kCount]) {
  with_activation(activation, [&]<Activation kActivation>() {
    if constexpr (kActivation == Activation::none) return;
    if (is_transcendental(kActivation) && narrow)
      activate_all<8>([](float x) { return activate_16bit<kActivation>(x); }, v);
    else
      activate_all<8>([](float x) { return activate<kActivation>(x); }, v);
  });
}

template <int kCount>
__device__ inline void activate_all(Activation activation, bool, double (&v)[kCount]) {
  with_activation(activation, [&]<Activation kActivation>() {
    if constexpr (kActivation == Activation::none) return;
    activate_all<4>([](double x) { return Formula<kActivation, Exact<double>>::forward(x); }, v);
  });
}

// s32 results support relu only.
template <int kCount>
__device__ inline void activate_all(Activation activation, bool, std::int32_t (&v)[kCount]) {
  if (activation == Activation::none) return;
#pragma unroll
  for (std::int32_t& x : v) x = max(x, 0);
}

// value + factor * x with one rounding, so that no bit depends on how x is read.
__device__ __forceinline__ float add_product(float value, float factor, float x) {
  return ptx::fma(factor, x, value);
}
__device__ __forceinline__ double add_product(double value, double factor, double x) {
  return ptx::fma(factor, x, value);
}
__device__ __forceinline__ std::int32_t add_product(std::int32_t value, std::int32_t factor,
                                                    std::int32_t x) {
  return value + factor * x;
}

// T is int32 with s32 sources, which only s32 results have. f64 values read f64 sources and all
// other ones; float values read all but f64 sources.
template <class T>
__device__ inline T load_element(const TensorRef& source, std::int64_t offset) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return static_cast<const std::int32_t*>(source.data)[offset];
  } else {
    if constexpr (std::is_same_v<T, double>) {
      if (source.dtype == DType::f64) return static_cast<const double*>(source.data)[offset];
    }
    if (source.dtype == DType::f32) return static_cast<const float*>(source.data)[offset];
    const std::uint32_t bits = static_cast<const std::uint16_t*>(source.data)[offset];
    return source.dtype == DType::f16 ? ptx::unpack_f16(bits).x : ptx::unpack_bf16(bits).x;
  }
}

template <DType kType>
__device__ inline auto load_pair(const void* data, std::int64_t offset) {
  if constexpr (kType == DType::s32) {
    return *reinterpret_cast<const int2*>(static_cast<const std::int32_t*>(data) + offset);
  } else if constexpr (kType == DType::f64) {
    return *reinterpret_cast<const double2*>(static_cast<const double*>(data) + offset);
  } else if constexpr (kType == DType::f32) {
    return *reinterpret_cast<const float2*>(static_cast<const float*>(data) + offset);
  } else {
    const std::uint32_t pair =
        *reinterpret_cast<const std::uint32_t*>(static_cast<const std::uint16_t*>(data) + offset);
    return ptx::unpack<kType>(pair);
  }
}

// v += factor * source for a unit whose columns are all inside the matrix. A load reads two
// elements of a row.
template <DType kType, class T, int kCount>
__device__ inline void add_pairs(const TensorRef& source, T factor, std::int64_t offset,
                                 const Window& window, T (&v)[kCount]) {
  constexpr int kBlocks = kCount / 4;
  decltype(load_pair<kType>(nullptr, 0)) pairs[2][kBlocks] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!window.holds(half) || (half == 1 && source.stride_row == 0)) continue;
    const std::int64_t first = offset + window.lane_rows[half] * source.stride_row;
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) pairs[half][j] = load_pair<kType>(source.data, first + 8 * j);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const auto pair = half == 1 && source.stride_row == 0 ? pairs[0][j] : pairs[half][j];
      T& first = v[4 * j + 2 * half];
      T& second = v[4 * j + 2 * half + 1];
      first = add_product(first, factor, T(pair.x));
      second = add_product(second, factor, T(pair.y));
    }
  }
}

// The same for a column-major source with all 16 rows inside the matrix. A load reads two elements
// of a column.
template <DType kType, class T, int kCount>
__device__ inline void add_column_pairs(const TensorRef& source, T factor, std::int64_t offset,
                                        const Window& window, T (&v)[kCount]) {
  decltype(load_pair<kType>(nullptr, 0)) pairs[kCount / 2];
  offset += window.lane_rows[0];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    pairs[i] = load_pair<kType>(source.data, offset + (i / 2 * 8 + i % 2) * source.stride_col);
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    T& upper = v[i / 2 * 4 + i % 2];
    T& lower = v[i / 2 * 4 + i % 2 + 2];
    upper = add_product(upper, factor, T(pairs[i].x));
    lower = add_product(lower, factor, T(pairs[i].y));
  }
}

// v += factor * source for a column vector, one value for each row: the bias after swap AB.
template <class T, int kCount>
__device__ inline void add_column_vector(const TensorRef& source, T factor, std::int64_t offset,
                                         const Window& window, T (&v)[kCount]) {
  T rows[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (window.holds(half))
      rows[half] = load_element<T>(source, offset + window.lane_rows[half] * source.stride_row);
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] = add_product(v[i], factor, rows[i / 2 % 2]);
}

// v += factor * source for any strides, also at the edge of the matrix.
template <class T, int kCount>
__device__ inline void add_elements(const TensorRef& source, T factor, std::int64_t offset,
                                    const Window& window, T (&v)[kCount]) {
  int col = threadIdx.x % 4 * 2;
#pragma unroll 1
  for (int j = 0; j < kCount / 4; ++j, col += 8, offset += 8 * source.stride_col) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (window.holds(i / 2) && col + i % 2 < window.cols)
        v[i] = add_product(
            v[i], factor,
            load_element<T>(source, offset + window.lane_rows[i / 2] * source.stride_row +
                                        i % 2 * source.stride_col));
    }
    rotate<4>(v);
  }
}

// Calls add(type) with the dtype of the source as a compile-time constant, for values of type T.
template <class T, class Add>
__device__ inline void dispatch_dtype(const TensorRef& source, const Add& add) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    add(std::integral_constant<DType, DType::s32>());
  } else {
    if constexpr (std::is_same_v<T, double>)
      if (source.dtype == DType::f64) return add(std::integral_constant<DType, DType::f64>());
    if (source.dtype == DType::f32)
      add(std::integral_constant<DType, DType::f32>());
    else if (source.dtype == DType::f16)
      add(std::integral_constant<DType, DType::f16>());
    else
      add(std::integral_constant<DType, DType::bf16>());
  }
}

template <class T, int kCount>
__device__ inline void add_source(const TensorRef& source, T factor, const Window& window,
                                  T (&v)[kCount]) {
  const std::int64_t offset = window.batch * source.stride_batch + window.row * source.stride_row +
                              (window.col + threadIdx.x % 4 * 2) * source.stride_col;
  const bool whole = window.cols >= kCount * 2;
  if (source.stride_col == 0) {
    add_column_vector(source, factor, offset, window, v);
  } else if (source.row_vectors && whole) {
    dispatch_dtype<T>(source,
                      [&](auto type) { add_pairs<type()>(source, factor, offset, window, v); });
  } else if (window.interleaved() && source.column_vectors && source.stride_row == 1 && whole &&
             window.rows >= kBoxRows) {
    dispatch_dtype<T>(
        source, [&](auto type) { add_column_pairs<type()>(source, factor, offset, window, v); });
  } else {
    add_elements(source, factor, offset, window, v);
  }
}

// Prefetches the epilogue operands of 16 rows x `columns` before the mainloop runs. A row vector
// goes to L1, a matrix to L2.
__device__ inline void prefetch(const Epilogue& epilogue, const Window& window, int columns) {
  constexpr int kCacheLine = 128;  // bytes
  if (window.cols <= 0) return;    // the last CTAs of a cluster may have no column inside
#pragma unroll 1
  for (int i = 0; i < kSources; ++i) {
    const TensorRef& source = epilogue.sources[i];
    if (source.data == nullptr || !source.row_vectors || source.stride_col == 0) continue;
    const int size = addressable_bytes(source.dtype);
    const int lines = (min(columns, window.cols) * size + kCacheLine - 1) / kCacheLine;  // a row
    const int rows = source.stride_row == 0 ? 1 : min(kBoxRows, window.rows);
    const char* first =
        static_cast<const char*>(source.data) +
        (window.batch * source.stride_batch + window.row * source.stride_row + window.col) * size;
    for (int line = threadIdx.x % 32; line < rows * lines; line += 32) {
      const char* address =
          first + line / lines * source.stride_row * size + line % lines * kCacheLine;
      if (rows == 1)
        ptx::prefetch_l1(address);
      else
        ptx::prefetch_l2(address);
    }
  }
}

// The epilogue after the scales: c, bias, activation and residual, on the values of one unit.
template <class T, int kCount>
__device__ inline void finish(const Epilogue& epilogue, const Window& window, T (&v)[kCount]) {
  T beta = epilogue.beta;
  if constexpr (std::is_same_v<T, std::int32_t>) beta = epilogue.beta_s32;
  if constexpr (std::is_same_v<T, double>) beta = epilogue.beta_f64;
#pragma unroll 1
  for (int i = 0; i < kSources; ++i) {
    if (i == kResidual)
      activate_all(epilogue.activation, addressable_bits(epilogue.out_dtype) <= 16, v);
    if (epilogue.sources[i].data != nullptr)
      add_source(epilogue.sources[i], i == kC ? beta : T(1), window, v);
  }
}

}  // namespace tcgemm::tile
