// The products of a warp of a GEMV kernel with a packed weight (core/packed_weight.h): mma.sync
// multiplies the codes, which are exact, and each group's sums are multiplied by its scale in f32.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/sm90/gemv/loader.cuh"
#include "kernels/sm90/gemv/pipeline.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared.cuh"
#include "tile/code_pairs.cuh"
#include "tile/decode.cuh"
#include "tile/epilogue.cuh"

namespace tcgemm::sm90 {

// Copies a block, 64 of k, of kColumns rows of the weight to shared memory: codes as they are, and
// then the scales of its groups, [group][scale; point or offset][row].
template <int kBits, int kColumns, int kScaleBytes>
struct PackedLoader {
  static constexpr int kUnitBytes = kBits * 128;  // 16 rows of codes
  static constexpr int kCodeBytes = kColumns / 16 * kUnitBytes;
  static constexpr int kBytes = kCodeBytes + kScaleBytes;
  static constexpr int kRowVectors = kColumns * 4 / 16;  // of 16 bytes, of a scale of each row

  const PackedParams& packed;
  const char* codes;    // this lane's first vector of the first block
  const float* scales;  // those of the first group
  int scale_vectors;    // of a block

  __device__ PackedLoader(const PackedParams& weight, int first) : packed(weight) {
    constexpr int kRows = PackedLayout::kRows;
    const std::int64_t block = first / kRows;
    codes = weight.codes + block * weight.blocks_k * (kRows / 16 * kUnitBytes) +
            first % kRows / 16 * kUnitBytes + threadIdx.x % 32 * 16;
    scales = weight.scales + block * weight.groups * weight.vectors * kRows + first % kRows;
    scale_vectors = weight.groups_in_block * weight.vectors * kRowVectors;
  }

  __device__ void load(std::uint32_t shared, int block) const {
    constexpr int kRows = PackedLayout::kRows;
    const int lane = threadIdx.x % 32;
    const char* from = codes + std::int64_t(block) * (kRows / 16 * kUnitBytes);
#pragma unroll
    for (int i = 0; i < kCodeBytes / 512; ++i)
      ptx::cp_async(shared + i * 512 + lane * 16, from + i * 512);
    const float* const row =
        scales + std::int64_t(packed.first_group(block)) * packed.vectors * kRows;
#pragma unroll
    for (int i = 0; i < (kScaleBytes / 16 + 31) / 32; ++i) {
      const int vector = i * 32 + lane;
      if (vector < scale_vectors)
        ptx::cp_async(shared + kCodeBytes + vector * 16,
                      reinterpret_cast<const char*>(row + vector / kRowVectors * kRows +
                                                    vector % kRowVectors * 4));
    }
  }
};

template <GemmConfig kConfig>
struct PackedGemvMainloop {
  static_assert(kConfig.is_gemv() && kConfig.layout == Layout::TN);
  static constexpr int kRows = kConfig.tile_m(), kColumns = kConfig.tile_n();
  static_assert(PackedLayout::kRows % kColumns == 0);
  static constexpr tile::RowOrder kColumnOrder = tile::RowOrder::interleaved;
  static constexpr int kRowsAtOnce = kRows / 8;
  using Sum = float;
  using Sums = float[kColumns / 16][kRowsAtOnce][4];
  using LoaderA = GemvLoader<kConfig.input, kRows>;
  using LoaderB = PackedLoader<kConfig.weight_bits, kColumns, kConfig.packed_scale_bytes(kColumns)>;
  static constexpr int kSteps = 4;                          // of 16 of k in a block
  static constexpr int kVectors = kConfig.weight_bits / 4;  // of 16 bytes that a lane decodes
  static constexpr int kScaleRowBytes = kColumns * 4;

  __device__ static void multiply(const CpAsyncParams& params, std::uint32_t memory, int row,
                                  int col, int batch, int rank, Sums& sums) {
    tile::for_format<kConfig.weight_bits>(
        params.packed.format, params.packed.zeros, [&]<WeightFormat kFormat, WeightZeros kZeros>() {
          run<kFormat, kZeros>(params, memory, row, col, batch, rank, sums);
        });
  }

 private:
  // The elements of a block of a that a lane has in fragments of b of mma.sync: two registers for
  // each step.
  using Activation = std::uint32_t[kRowsAtOnce][2 * kSteps];

  template <WeightFormat kFormat, WeightZeros kZeros>
  __device__ __forceinline__ static void run(const CpAsyncParams& params, std::uint32_t memory,
                                             int row, int col, int batch, int rank, Sums& sums) {
    LoaderA a(params.a, params.a.stride_row, params.a.stride_col, params.a_vector, row,
              params.extent.m, params.extent.k, batch);
    const LoaderB b(params.packed, col);
    const std::uint32_t code_pairs =
        memory + kConfig.stages * kConfig.stage_bytes() + kConfig.gemv_sums_bytes();
    const tile::Decoder<kConfig.input, kFormat> decoder(code_pairs);
    const auto begin = [&] {
      if constexpr (kFormat == WeightFormat::table4)
        tile::fill_code_pairs<kConfig.input>(params.packed.table, code_pairs);
    };
    gemv_pipeline<kConfig, true>(
        params, memory, rank, MatrixLoader{a}, b, begin, [&](std::uint32_t stage, int) {
          multiply_block<kFormat, kZeros>(params.packed, decoder, stage, sums);
        });
  }

  // Copies a in the order in which ldmatrix reads it: 8 rows of 16 bytes are contiguous.
  struct MatrixLoader {
    static constexpr int kBytes = LoaderA::kBytes, kDepth = LoaderA::kDepth;
    LoaderA loader;

    __device__ void load(std::uint32_t shared, int block) const {
      const int lane = threadIdx.x % 32;
      loader.load(shared + (lane % 4 * 8 + lane / 4) * 16, block);
    }
  };

  __device__ static void load_activation(std::uint32_t shared, Activation& a) {
    const std::uint32_t own = shared + threadIdx.x % 32 * 16;
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        ptx::ldmatrix_x4<false>(reinterpret_cast<std::uint32_t (&)[4]>(a[i][4 * half]),
                                own + (2 * i + half) * LoaderA::kVectorBytes);
  }

  template <WeightFormat kFormat, WeightZeros kZeros>
  __device__ __forceinline__ static void multiply_block(
      const PackedParams& packed, tile::Decoder<kConfig.input, kFormat> decoder,
      std::uint32_t stage, Sums& sums) {
    Activation a;
    load_activation(stage + LoaderB::kBytes, a);
    [[maybe_unused]] float totals[kSteps][kRowsAtOnce][2];
    if constexpr (kZeros == WeightZeros::offsets) add_rows(a, totals);
    const int lane = threadIdx.x % 32;
    const int steps = kSteps / packed.groups_in_block;  // of a group in the block
    const int group_bytes = packed.vectors * kScaleRowBytes;
#pragma unroll
    for (int unit = 0; unit < kColumns / 16; ++unit) {
      uint4 words[kVectors];
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        words[i] =
            ptx::load_shared_vector(stage + unit * LoaderB::kUnitBytes + i * 512 + lane * 16);
      std::uint32_t group = stage + LoaderB::kCodeBytes + (16 * unit + lane / 4 * 2) * 4;
      float products[kRowsAtOnce][4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if constexpr (kZeros == WeightZeros::points)
          if (step % steps == 0) decoder.set_points(load_pair(group + kScaleRowBytes));
        std::uint32_t weight[4];
        decoder.decode(words, step, weight);
#pragma unroll
        for (int i = 0; i < kRowsAtOnce; ++i)
          ptx::mma_sync<kConfig.input, kConfig.input>(products[i], weight, &a[i][2 * step]);
        if constexpr (kZeros == WeightZeros::offsets)
          add_offsets(load_pair(group + kScaleRowBytes), totals[step], sums[unit]);
        if ((step + 1) % steps != 0) continue;
        add_products(load_pair(group), products, sums[unit]);
        group += group_bytes;
      }
    }
  }

  // sums += scale * products, and the products start again.
  __device__ static void add_products(float2 scale, float (&products)[kRowsAtOnce][4],
                                      float (&sums)[kRowsAtOnce][4]) {
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        sums[i][r] += (r < 2 ? scale.x : scale.y) * products[i][r];
        products[i][r] = 0;
      }
  }

  // The sums of the rows of a over each step, by mma.sync with ones. The columns of the result are
  // the rows of a.
  __device__ static void add_rows(const Activation& a, float (&totals)[kSteps][kRowsAtOnce][2]) {
    constexpr std::uint32_t kOne = kConfig.input == DType::bf16 ? 0x3f803f80u : 0x3c003c00u;
    constexpr std::uint32_t kOnes[4] = {kOne, kOne, kOne, kOne};
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        float total[4] = {};
        ptx::mma_sync<kConfig.input, kConfig.input>(total, kOnes, &a[i][2 * step]);
        totals[step][i][0] = total[0];
        totals[step][i][1] = total[1];
      }
  }

  __device__ static void add_offsets(float2 offset, const float (&totals)[kRowsAtOnce][2],
                                     float (&sums)[kRowsAtOnce][4]) {
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[i][r] += (r < 2 ? offset.x : offset.y) * totals[i][r % 2];
  }

  __device__ static float2 load_pair(std::uint32_t address) {
    const uint2 pair = ptx::load_shared_pair(address);
    return {__uint_as_float(pair.x), __uint_as_float(pair.y)};
  }
};

}  // namespace tcgemm::sm90
