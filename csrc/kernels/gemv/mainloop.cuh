// The products of a warp of a GEMV kernel whose operands have one type, or two of 8 bits.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/gemv/loader.cuh"
#include "kernels/gemv/multiply.cuh"
#include "kernels/gemv/pipeline.cuh"
#include "ptx/shared.cuh"
#include "tile/epilogue.cuh"

namespace tcgemm::gemv {

template <GemmConfig kConfig>
struct GemvMainloop {
  static constexpr int kRows = kConfig.tile_m(), kColumns = kConfig.tile_n();
  static constexpr tile::RowOrder kColumnOrder = tile::RowOrder::native;
  using Multiply = GemvMultiply<kConfig>;
  using Sum = typename Multiply::Sum;
  using Sums = typename Multiply::Sums[kColumns / 16][kRows / 8];
  using LoaderA = GemvLoader<kConfig.input, kRows>;
  using LoaderB = GemvLoader<kConfig.input_b, kColumns>;

  __device__ static void multiply(const CpAsyncParams& params, std::uint32_t memory, int row,
                                  int col, int batch, int rank, Sums& sums) {
    LoaderB b(params.b, params.b.stride_col, params.b.stride_row, params.b_vector, col,
              params.extent.n, params.extent.k, batch);
    const std::uint32_t own = threadIdx.x % 32 * sizeof(uint4);  // this lane's place in a stage
    const GemvPipeline<kConfig, false, LoaderA, LoaderB> pipeline(params, memory + own, rank, b);
    const auto make_a = [&] {
      return LoaderA(params.a, params.a.stride_row, params.a.stride_col, params.a_vector, row,
                     params.extent.m, params.extent.k, batch);
    };
    LoaderA a = pipeline.begin(params, make_a, [] {});
    pipeline.run(a, [&](std::uint32_t stage) { multiply_block(stage, sums); });
  }

 private:
  __device__ static void load_row(std::uint32_t from, uint4 (&row)[2]) {
    row[0] = ptx::load_shared_vector(from);
    row[1] = ptx::load_shared_vector(from + LoaderB::kVectorBytes);
  }

  __device__ static void multiply_block(std::uint32_t stage, Sums& sums) {
    constexpr int kRowBytes = 2 * LoaderB::kVectorBytes;  // of 8 rows
    uint4 a[kRows / 8][2];
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) load_row(stage + LoaderB::kBytes + i * kRowBytes, a[i]);
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      uint4 low[2], high[2];
      load_row(stage + 2 * j * kRowBytes, low);
      load_row(stage + (2 * j + 1) * kRowBytes, high);
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) Multiply::run(sums[j][i], low, high, a[i]);
    }
  }
};

}  // namespace tcgemm::gemv
