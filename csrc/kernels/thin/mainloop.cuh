// The products of a warp's rows in a thin kernel: mma.sync of 16 bits, or of f32 elements that are
// widened to f64.
#pragma once

#include <cstdint>
#include <type_traits>

#include "catalog.h"
#include "core/params.h"
#include "ptx/convert.cuh"
#include "ptx/mma_f64.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared.cuh"
#include "tile/fragment.cuh"
#include "tile/store_element.cuh"

namespace tcgemm::thin {

// An instruction multiplies 16 rows of a, 16 of k and 8 columns of b. Operands may come in any
// order of these k, and of columns. The order here gives a lane adjacent elements, which it loads
// and stores as vectors. lane = 4 * g + t:
//
//   a   the k from 4 t on, of rows g and g + 8
//   d   8 columns (f32: 4) from 8 t on, of rows g and g + 8, of 4 (f32: 2) instructions
//
// tcgemm/emulate/thin.py adds in this order of k. Results that need an epilogue have their columns
// in the usual order, as tile/store.cuh has them.
template <GemmConfig kConfig>
class ThinMainloop {
  static constexpr bool kWidens = kConfig.accumulator == DType::f64;
  using Element = std::conditional_t<kWidens, float, std::uint16_t>;
  using Sum = std::conditional_t<kWidens, double, float>;
  struct FragmentB {
    std::conditional_t<kWidens, double[4], std::uint32_t[2]> words;
  };
  static constexpr int kVector = 4;  // elements of a lane along k
  using Vector = std::conditional_t<kWidens, uint4, uint2>;
  static constexpr int kSteps = kConfig.tile_k() / 16;
  static constexpr int kBlocks = kConfig.n / 8;
  static constexpr int kColumns = kWidens ? 4 : 8;  // of a lane, adjacent
  static constexpr int kGroup = kColumns / 2;       // blocks of 8 columns that they are in

 public:
  static_assert(kConfig.m64_blocks == 1);
  static constexpr int kSums = kConfig.n / 2;  // of a lane, in the 16 rows of a warp
  static constexpr int kSharedBytes = kSteps * kBlocks * 32 * sizeof(FragmentB);

  // Is every result a sum that is only rounded?
  __device__ static bool is_plain(const Epilogue& epilogue) {
    return tile::stores_elements(epilogue) && !epilogue.scaled && epilogue.out_stride_col == 1;
  }

  __device__ ThinMainloop(const CpAsyncParams& params, std::uint32_t shared)
      : params_(params),
        shared_(shared),
        is_plain_(is_plain(params.epilogue)),
        loads_vectors_(
            params.a.stride_col == 1 &&
            holds_vectors<Element, kVector>(params.a.data, params.a.stride_row, params.extent.k)) {}

  // Writes the fragments of b to shared memory. Columns and k outside of it are zeros.
  __device__ void load_b() const {
    const int count = steps() * kBlocks * 32;
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += kConfig.threads()) {
      const int lane = i % 32, block = i / 32 % kBlocks, step = i / 32 / kBlocks;
      const int column = column_of(block, lane / 4);
      Element elements[kVector];
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        const int k = step * 16 + lane % 4 * kVector + j;
        const bool is_inside = k < params_.extent.k && column < params_.extent.n;
        elements[j] =
            is_inside
                ? static_cast<const Element*>(
                      params_.b.data)[k * params_.b.stride_row + column * params_.b.stride_col]
                : Element(0);
      }
      store_shared(shared_ + i * sizeof(FragmentB), elements);
    }
  }

  // The sums of 16 rows from `row` on.
  __device__ void multiply(int row, float (&results)[kSums]) const {
    Sum sums[kSums] = {};
    Vector a[kSteps][2];
    loads_vectors_ ? load_rows<true>(row, a) : load_rows<false>(row, a);
    const int count = steps();
    const std::uint32_t from = shared_ + threadIdx.x % 32 * sizeof(FragmentB);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step >= count) break;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        if (block / kGroup * (8 * kGroup) >= params_.extent.n) break;
        const FragmentB b = load_shared(from + (step * kBlocks + block) * (32 * sizeof(FragmentB)));
        mma(&sums[block * 4], a[step][0], a[step][1], b);
      }
    }
#pragma unroll
    for (int j = 0; j < kSums; ++j) results[j] = static_cast<float>(sums[j]);
  }

  // Stores the results if they are plain. Returns false for others.
  __device__ bool store(int row, const float (&sums)[kSums]) const {
    if (!is_plain_) return false;
    if (params_.epilogue.out_dtype == DType::f32)
      store_rows<DType::f32>(row, sums);
    else if (params_.epilogue.out_dtype == DType::bf16)
      store_rows<DType::bf16>(row, sums);
    else
      store_rows<DType::f16>(row, sums);
    return true;
  }

 private:
  // Is each row a whole number of aligned vectors of kCount elements?
  template <class T, int kCount>
  __device__ static bool holds_vectors(const void* data, std::int64_t pitch, int columns) {
    return columns % kCount == 0 && pitch % kCount == 0 &&
           reinterpret_cast<std::uintptr_t>(data) % (kCount * sizeof(T)) == 0;
  }

  __device__ int steps() const { return (params_.extent.k + 15) / 16; }

  // The column of the result that is column `group` of a block.
  __device__ int column_of(int block, int group) const {
    if (!is_plain_) return block * 8 + group;
    return block / kGroup * (8 * kGroup) + group / 2 * kColumns + block % kGroup * 2 + group % 2;
  }

  // The vectors of a lane: of rows g and g + 8.
  template <bool kVectors>
  __device__ void load_rows(int row, Vector (&a)[kSteps][2]) const {
    const int k = params_.extent.k;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at_row = row + i * 8 + threadIdx.x % 32 / 4;
      const Element* const from =
          static_cast<const Element*>(params_.a.data) + at_row * params_.a.stride_row;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int first = step * 16 + threadIdx.x % 4 * kVector;
        if (step * 16 >= k) break;
        a[step][i] = {};
        if (at_row >= params_.extent.m || first >= k) continue;
        if constexpr (kVectors) {
          a[step][i] = *reinterpret_cast<const Vector*>(from + first);
        } else {
          Element elements[kVector] = {};
#pragma unroll
          for (int j = 0; j < kVector; ++j)
            if (first + j < k) elements[j] = from[(first + j) * params_.a.stride_col];
          if constexpr (kWidens)
            a[step][i] = {__float_as_uint(elements[0]), __float_as_uint(elements[1]),
                          __float_as_uint(elements[2]), __float_as_uint(elements[3])};
          else
            a[step][i] = packed(elements);
        }
      }
    }
  }

  __device__ static uint2 packed(const std::uint16_t (&x)[4]) {
    return {x[0] | std::uint32_t(x[1]) << 16, x[2] | std::uint32_t(x[3]) << 16};
  }

  // low, high: of a row and of the row 8 below it.
  __device__ static void mma(Sum* sums, const Vector& low, const Vector& high, const FragmentB& b) {
    if constexpr (kWidens) {
      const double rows[8] = {widened(low.x), widened(high.x), widened(low.y), widened(high.y),
                              widened(low.z), widened(high.z), widened(low.w), widened(high.w)};
      ptx::mma_f64(sums, rows, b.words);
    } else {
      const std::uint32_t rows[4] = {low.x, high.x, low.y, high.y};
      ptx::mma_sync<kConfig.input, kConfig.input>(sums, rows, b.words);
    }
  }
  __device__ static double widened(std::uint32_t word) { return ptx::widen(__uint_as_float(word)); }

  __device__ static void store_shared(std::uint32_t address, const Element (&elements)[kVector]) {
    if constexpr (kWidens) {
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        ptx::store_shared_f64(address + i * sizeof(double), ptx::widen(elements[i]));
    } else {
      ptx::store_shared_pair(address, packed(elements));
    }
  }
  __device__ static FragmentB load_shared(std::uint32_t address) {
    FragmentB fragment;
    if constexpr (kWidens) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 words = ptx::load_shared_vector(address + i * 16);
        fragment.words[2 * i] = __hiloint2double(words.y, words.x);
        fragment.words[2 * i + 1] = __hiloint2double(words.w, words.z);
      }
    } else {
      const uint2 words = ptx::load_shared_pair(address);
      fragment.words[0] = words.x;
      fragment.words[1] = words.y;
    }
    return fragment;
  }

  template <DType kOut>
  __device__ void store_rows(int row, const float (&sums)[kSums]) const {
    using Out = std::conditional_t<kOut == DType::f32, float, std::uint16_t>;
    const Epilogue& epilogue = params_.epilogue;
    const int n = params_.extent.n;
    const bool stores_vectors =
        holds_vectors<Out, kColumns>(epilogue.out, epilogue.out_stride_row, n);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at_row = row + i * 8 + threadIdx.x % 32 / 4;
      if (at_row >= params_.extent.m) continue;
      Out* const to = static_cast<Out*>(epilogue.out) + at_row * epilogue.out_stride_row;
#pragma unroll
      for (int group = 0; group < kBlocks / kGroup; ++group) {
        const int col = group * (8 * kGroup) + threadIdx.x % 4 * kColumns;
        if (col >= n) break;
        alignas(16) Out results[kColumns];
#pragma unroll
        for (int j = 0; j < kGroup; ++j) {
          const float* const pair = &sums[(group * kGroup + j) * 4 + i * 2];
          if constexpr (kOut == DType::f32) {
            results[2 * j] = pair[0];
            results[2 * j + 1] = pair[1];
          } else {
            const std::uint32_t word = ptx::pack<kOut>(pair[0], pair[1]);
            results[2 * j] = static_cast<Out>(word);
            results[2 * j + 1] = static_cast<Out>(word >> 16);
          }
        }
        if (stores_vectors)
          store_vector(to + col, results);
        else
#pragma unroll
          for (int j = 0; j < kColumns; ++j)
            if (col + j < n) to[col + j] = results[j];
      }
    }
  }

  template <class Out>
  __device__ static void store_vector(Out* to, const Out (&results)[kColumns]) {
    using Stored = std::conditional_t<kColumns * sizeof(Out) == 8, uint2, uint4>;
#pragma unroll
    for (unsigned i = 0; i < kColumns * sizeof(Out) / sizeof(Stored); ++i)
      reinterpret_cast<Stored*>(to)[i] = reinterpret_cast<const Stored*>(results)[i];
  }

  const CpAsyncParams& params_;
  const std::uint32_t shared_;
  const bool is_plain_, loads_vectors_;
};

}  // namespace tcgemm::thin
