// The epilogue of EpiloguePath::columns: results whose columns are vectors.
// docs/dev/kernels/column_stores.md says what was tried.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/params.h"
#include "ptx/fence.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/prefetch.cuh"
#include "tile/column_pairs.cuh"
#include "tile/epilogue.cuh"
#include "tile/fragment.cuh"
#include "tile/scale.cuh"
#include "tile/store.cuh"
#include "tile/tma_store_columns.cuh"
#include "tile/transposed_unit.cuh"

namespace tcgemm::tile {

// The properties of a kernel for which its transposing epilogue is compiled.
struct TransposedTraits {
  int columns;        // of the fragment
  int unit;           // columns of a unit: 16 or 32
  DType out;          // of the results that have the plain variant; f32: of all
  bool plain_scales;  // the operands have 8 bits, so scales are common: the plain variant has them
};

// stmatrix transposes units of 16 rows into the buffers of tile/tma_store_columns.cuh, which the
// store warp stores. A fragment runs one of two variants:
//
//   plain     a bias and relu, and with `plain_scales` scales; unrolled
//   general   every term but zero points, of c and the residual one; a loop over the units. Results
//             of 8 bits have no addend and no second result
template <TransposedTraits kTraits, class Register>
class TransposedEpilogue {
 public:
  // For the 16 rows of a warp from (row, col) of matrix `batch` on. buffers: of the warpgroup.
  // vector: Epilogue::shared_vector for the columns from `col` on, in f32.
  __device__ __forceinline__ TransposedEpilogue(const Epilogue& epilogue, const Extent& extent,
                                                char* buffers, const float* vector, int warpgroup,
                                                int row, int col, int batch)
      : epilogue_(epilogue),
        extent_(extent),
        buffers_(buffers),
        vector_(vector),
        warpgroup_(warpgroup),
        row_(row),
        col_(col),
        batch_(batch) {}

  // Prefetches a bias with a value for each row, before the mainloop runs.
  __device__ __forceinline__ static void prefetch(const Epilogue& epilogue, const Window& window) {
    const TensorRef& bias = epilogue.sources[kBias];
    if (bias.data == nullptr || bias.stride_col != 0 || window.rows <= 0) return;
    if (threadIdx.x % 32 == 0)
      ptx::prefetch_l1(static_cast<const char*>(bias.data) +
                       (window.batch * bias.stride_batch + window.row * bias.stride_row) *
                           addressable_bytes(bias.dtype));
  }

  // All four warps of the warpgroup must call it: they share buffers with the store warp.
  __device__ __forceinline__ void store(const Register* fragment) {
    const Window window = window_of(0);
    if (epilogue_.scaled) rows_ = load_row_scales(epilogue_, window);
    if (has_bias() && !shares_bias()) load_bias_rows(window);
    if (has_general_terms())
      store_general(fragment);
    else
      store_plain(fragment, std::make_integer_sequence<int, kUnits>());
  }

 private:
  static constexpr bool kWide = kTraits.out == DType::f32;
  static constexpr int kBufferColumns = kWide ? kStoreColumns / 2 : kStoreColumns;
  using Addend = std::conditional_t<kWide, TransposedWideAddend, TransposedAddend<kTraits.unit>>;
  static constexpr int kUnit = kTraits.unit;
  static constexpr int kUnits = kTraits.columns / kUnit;
  static_assert(kTraits.columns % kUnit == 0 && kBufferColumns % kUnit == 0);
  static constexpr int kValues = kUnit / 2;  // of a lane
  using Accumulators =
      std::conditional_t<std::is_same_v<Register, std::int32_t>, std::int32_t, float>[kValues];

  __device__ __forceinline__ Window window_of(int unit) const {
    return window(extent_, row_, col_ + unit * kUnit, batch_);
  }
  __device__ __forceinline__ bool has_bias() const {
    return epilogue_.sources[kBias].data != nullptr;
  }
  // The bias has a value for each column, in shared memory.
  __device__ __forceinline__ bool shares_bias() const {
    return epilogue_.sources[kBias].stride_col != 0;
  }
  // There is at most one of c and the residual.
  __device__ __forceinline__ bool has_c() const { return epilogue_.sources[kC].data != nullptr; }
  __device__ __forceinline__ const TensorRef& addend_source() const {
    return epilogue_.sources[has_c() ? kC : kResidual];
  }

  __device__ __forceinline__ bool has_general_terms() const {
    const bool plain_activation =
        epilogue_.activation == Activation::none || epilogue_.activation == Activation::relu;
    const bool plain_scales =
        kTraits.plain_scales && (!scales_columns(epilogue_) || epilogue_.shares_scales);
    return !plain_activation || epilogue_.out_dtype != kTraits.out ||
           (epilogue_.scaled && !plain_scales) || addend_source().data != nullptr ||
           epilogue_.z != nullptr || epilogue_.amax != nullptr || epilogue_.scale_out != nullptr;
  }

  __device__ __forceinline__ void load_bias_rows(const Window& window) {
    const TensorRef& bias = epilogue_.sources[kBias];
    const std::int64_t first = window.batch * bias.stride_batch + window.row * bias.stride_row;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (window.holds(half))
        bias_rows_[half] =
            load_element<float>(bias, first + window.lane_rows[half] * bias.stride_row);
  }

  __device__ __forceinline__ void add_bias(int unit, float (&v)[kValues]) const {
    if (shares_bias()) {
      ColumnPairs<kUnit> bias;
      bias.template load<kValues>(vector_ + unit * kUnit);
      bias.add_to(v);
    } else {
#pragma unroll
      for (int i = 0; i < kValues; ++i) v[i] += bias_rows_[i / 2 % 2];
    }
  }

  // Two roundings have the order of the call, so that a swap of A and B changes no bit: alpha and
  // scale_a first, with scale_b if that is one value.
  __device__ __forceinline__ void multiply_scales(int unit, float (&v)[kValues]) const {
    const Window window = window_of(unit);
    const float* shared = vector_ + unit * kUnit;
    if (!epilogue_.scales_columns_first)
      return tile::multiply_scales<kUnit>(epilogue_, rows_, window, shared, v);
    const bool has_row_scales = epilogue_.scale_a.data != nullptr && epilogue_.scale_a.stride != 0;
    float first[kValues];
#pragma unroll
    for (float& x : first) x = epilogue_.alpha * rows_.b;
    if (scales_columns(epilogue_))
      column_scales<kUnit, kValues>(epilogue_, window, shared).multiply(first);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float of_row = rows_.a[i / 2 % 2];
      v[i] = has_row_scales ? product(product(v[i], first[i]), of_row)
                            : product(v[i], product(first[i], of_row));
    }
  }

  template <int... kIndex>
  __device__ __forceinline__ void store_plain(const Register* fragment,
                                              std::integer_sequence<int, kIndex...>) const {
    (store_plain_unit<kIndex>(fragment), ...);
  }

  template <int kIndex>
  __device__ __forceinline__ void store_plain_unit(const Register* fragment) const {
    Accumulators accumulators;
    copy_columns<kIndex * kUnit>(fragment, accumulators);
    float v[kValues];
    convert(accumulators, v);
    if constexpr (kTraits.plain_scales)
      if (epilogue_.scaled) multiply_scales(kIndex, v);
    if (has_bias()) add_bias(kIndex, v);
    const bool relu = epilogue_.activation == Activation::relu;
    if constexpr (kWide) {
      if (relu) activate_each<Activation::relu, false>(v);
      acquire_buffer(kIndex);
      write_transposed_words(buffer_of(kIndex), v);
    } else {
      std::uint32_t words[kValues / 2];
      if (relu) {
#pragma unroll
        for (int i = 0; i < kValues / 2; ++i)
          words[i] = ptx::pack_relu<kTraits.out>(v[2 * i], v[2 * i + 1]);
      } else {
        pack_words<kTraits.out>(v, words);
      }
      acquire_buffer(kIndex);
      place_of(kIndex).write(words);
    }
    pass_on(kIndex);
  }

  __device__ __forceinline__ void store_general(const Register* fragment) const {
    Addend next;
    load_addend(0, next);
#pragma unroll 1
    for (int unit = 0; unit < kUnits; ++unit) {
      Accumulators accumulators;
      select_unit<kUnits>(fragment, unit, accumulators);
      Addend addend = next;
      next = {};
      load_addend(unit + 1, next);
      store_general_unit(unit, addend, accumulators);
    }
  }

  // Columns beyond the tile are loaded too, where the matrix has them.
  __device__ __forceinline__ void load_addend(int unit, Addend& addend) const {
    if (addend_source().data != nullptr) addend.load(addend_source(), window_of(unit));
  }

  // The order of the terms is that of Epilogue.
  __device__ __forceinline__ void store_general_unit(int unit, Addend& addend,
                                                     const Accumulators& accumulators) const {
    acquire_buffer(unit);
    const TensorRef& source = addend_source();
    if constexpr (!kWide)
      if (source.data != nullptr) addend.exchange(place_of(unit));
    float v[kValues];
    convert(accumulators, v);
    if (epilogue_.scaled) multiply_scales(unit, v);
    if (has_c()) addend.add_to(v, epilogue_.beta, source.dtype);
    if (has_bias()) add_bias(unit, v);
    if (epilogue_.z != nullptr) store_z(unit, v);
    with_activation(epilogue_.activation, [&]<Activation kActivation>() {
      if constexpr (kActivation != Activation::none) activate_each<kActivation, !kWide>(v);
    });
    if (!has_c() && source.data != nullptr) addend.add_to(v, 1.0f, source.dtype);
    requantise(epilogue_, window_of(unit), v);
    write(unit, v);
    pass_on(unit);
  }

  __device__ __forceinline__ void store_z(int unit, const float (&v)[kValues]) const {
    if constexpr (kWide)
      store_wide_z_transposed(epilogue_, window_of(unit), v);
    else if (epilogue_.out_dtype == DType::bf16)
      store_z_transposed<DType::bf16>(epilogue_, window_of(unit), place_of(unit), v);
    else
      store_z_transposed<DType::f16>(epilogue_, window_of(unit), place_of(unit), v);
  }

  // Writes a unit of any dtype to its buffer.
  __device__ __forceinline__ void write(int unit, const float (&v)[kValues]) const {
    using enum DType;
    static_assert(are_all({bf16, f16, e4m3, e5m2, s8}, is_narrow_result));
    char* buffer = buffer_of(unit);
    if constexpr (kWide) {
      write_transposed_words(buffer, v);
    } else if (epilogue_.out_dtype == bf16) {
      write_pairs<bf16>(unit, v);
    } else if (epilogue_.out_dtype == f16) {
      write_pairs<f16>(unit, v);
    } else if (epilogue_.out_dtype == e4m3) {
      write_transposed_bytes<e4m3>(buffer, column_of(unit), v);
    } else if (epilogue_.out_dtype == e5m2) {
      write_transposed_bytes<e5m2>(buffer, column_of(unit), v);
    } else {
      write_transposed_bytes<s8>(buffer, column_of(unit), v);
    }
  }

  template <DType kOut>
  __device__ __forceinline__ void write_pairs(int unit, const float (&v)[kValues]) const {
    std::uint32_t words[kValues / 2];
    pack_words<kOut>(v, words);
    place_of(unit).write(words);
  }

  __device__ __forceinline__ static void convert(const Accumulators& from, float (&v)[kValues]) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) v[i] = from[i];
  }

  __device__ __forceinline__ static int column_of(int unit) {
    return unit * kUnit % kBufferColumns;
  }
  __device__ __forceinline__ static int index_of(int unit) { return unit * kUnit / kBufferColumns; }
  __device__ __forceinline__ char* buffer_of(int unit) const {
    return buffers_ + index_of(unit) % 2 * kBufferBytes;
  }
  __device__ __forceinline__ TransposedUnit place_of(int unit) const {
    return {buffer_of(unit), column_of(unit)};
  }

  // Waits until TMA has read the buffer of the unit, if the unit is the first one in it.
  __device__ __forceinline__ void acquire_buffer(int unit) const {
    if (column_of(unit) == 0)
      ptx::named_barrier_sync(free_barrier(warpgroup_, index_of(unit)), kBarrierThreads);
  }

  // Passes the buffer of the unit to the store warp, if the unit is the last one in it.
  __device__ __forceinline__ void pass_on(int unit) const {
    if (column_of(unit) + kUnit < kBufferColumns && unit + 1 < kUnits) return;
    ptx::fence_proxy_async();
    ptx::named_barrier_arrive(full_barrier(warpgroup_, index_of(unit)), kBarrierThreads);
  }

  const Epilogue& epilogue_;
  const Extent& extent_;
  char* buffers_;
  const float* vector_;
  int warpgroup_, row_, col_, batch_;
  RowScales rows_;
  float bias_rows_[2] = {};
};

}  // namespace tcgemm::tile
