// The products of one block of a warp in a GEMV kernel, by mma.sync. Columns of the result are the
// rows of the instruction, because it has 16 rows and 8 columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include "catalog.h"
#include "ptx/convert.cuh"
#include "ptx/mma_f64.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/tf32.cuh"
#include "tile/fragment.cuh"

namespace tcgemm::gemv {

// A lane has two vectors of 16 bytes of a row in a block (loader.cuh), which are words 0 to 7. An
// instruction multiplies what the four lanes of a row have in two words, or in the words of four
// elements of f64. The order of k inside an instruction is so another one than in memory, but the
// same for both operands. tcgemm/emulate/gemv.py adds in this order.
template <GemmConfig kConfig>
struct GemvMultiply {
  static_assert(kConfig.is_gemv() && kConfig.layout == Layout::TN);
  using Sum = std::conditional_t<kConfig.accumulator == DType::f64, double,
                                 tile::Value<kConfig.accumulator>>;
  // Registers of a fragment of 16 columns of the result x 8 rows.
  using Sums = Sum[4];

  // sums += the products of two rows of b, `low` and 8 below it `high`, with a row of a.
  __device__ static void run(Sums& sums, const uint4 (&low)[2], const uint4 (&high)[2],
                             const uint4 (&a)[2]) {
    if constexpr (kConfig.input == DType::f64) {
      run_f64(sums,
              {f64(low[0].x, low[0].y), f64(low[0].z, low[0].w), f64(low[1].x, low[1].y),
               f64(low[1].z, low[1].w)},
              {f64(high[0].x, high[0].y), f64(high[0].z, high[0].w), f64(high[1].x, high[1].y),
               f64(high[1].z, high[1].w)},
              {f64(a[0].x, a[0].y), f64(a[0].z, a[0].w), f64(a[1].x, a[1].y), f64(a[1].z, a[1].w)});
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) run_half(sums, low[i], high[i], a[i]);
    }
  }

 private:
  struct Elements {
    double x[4];
  };

  __device__ static double f64(std::uint32_t low, std::uint32_t high) {
    return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
  }
  __device__ static double widened(std::uint32_t word) { return ptx::widen(__uint_as_float(word)); }
  __device__ static Elements widened(const uint4& words) {
    return {widened(words.x), widened(words.y), widened(words.z), widened(words.w)};
  }

  __device__ static void run_f64(Sums& sums, const Elements& low, const Elements& high,
                                 const Elements& a) {
    const double rows[8] = {low.x[0], high.x[0], low.x[1], high.x[1],
                            low.x[2], high.x[2], low.x[3], high.x[3]};
    ptx::mma_f64(sums, rows, a.x);
  }

  __device__ static void run_half(Sums& sums, const uint4& low, const uint4& high, const uint4& a) {
    if constexpr (kConfig.input == DType::f32) {
      run_f64(sums, widened(low), widened(high), widened(a));
    } else {
      run_pair(sums, {low.x, high.x, low.y, high.y}, {a.x, a.y});
      run_pair(sums, {low.z, high.z, low.w, high.w}, {a.z, a.w});
    }
  }

  struct Rows {
    std::uint32_t words[4];
  };
  struct Columns {
    std::uint32_t words[2];
  };
  __device__ static void run_pair(Sums& sums, Rows rows, Columns columns) {
    if constexpr (kConfig.input == DType::tf32) {
#pragma unroll
      for (std::uint32_t& word : rows.words) word = ptx::round_tf32(word);
#pragma unroll
      for (std::uint32_t& word : columns.words) word = ptx::round_tf32(word);
    }
    ptx::mma_sync<kConfig.input_b, kConfig.input>(sums, rows.words, columns.words);
  }
};

}  // namespace tcgemm::gemv
