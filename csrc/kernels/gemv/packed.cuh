// The products of a warp of a GEMV kernel with a packed weight (core/packed_weight.h): mma.sync
// multiplies the codes, which are exact, and each group's sums are multiplied by its scale in f32.
// Instructions bound these kernels, so the loaders advance pointers.
#pragma once

#include <cstdint>

#include "catalog.h"
#include "core/params.h"
#include "kernels/gemv/pipeline.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared.cuh"
#include "ptx/uniform.cuh"
#include "tile/code_pairs.cuh"
#include "tile/decode.cuh"
#include "tile/epilogue.cuh"
#include "tile/swizzle.cuh"

namespace tcgemm::gemv {

// The bytes of a block, 64 of k, of kColumns rows of the weight: codes as they are, and then the
// scales of its groups, [group][scale; point or offset][row]. The blocks of a warp are kStep apart.
template <int kBits, int kColumns, int kScaleBytes, int kStep>
struct PackedLoader {
  static constexpr int kRows = PackedLayout::kRows;
  static constexpr int kUnitBytes = kBits * 128;  // 16 rows of codes
  static constexpr int kBlockBytes = kRows / 16 * kUnitBytes;
  static constexpr int kCodeBytes = kColumns / 16 * kUnitBytes;
  static constexpr int kBytes = kCodeBytes + kScaleBytes;
  static constexpr int kRowVectors = kColumns * 4 / 16;  // of 16 bytes, of a scale of each row

  const PackedParams& packed;
  const char* codes;          // this lane's first vector of the next block
  const char* scales;         // of the first group
  std::uint32_t group_bytes;  // from a group to the next

  __device__ PackedLoader(const PackedParams& weight, int column, int first_block)
      : packed(weight) {
    const int lane = threadIdx.x % 32, vector = lane & (scale_vectors() - 1);
    const std::int64_t block = column / kRows;
    codes = weight.codes + (block * weight.blocks_k + first_block) * kBlockBytes +
            column % kRows / 16 * kUnitBytes + lane * 16;
    scales = reinterpret_cast<const char*>(
        weight.scales + block * weight.groups * weight.vectors * kRows + column % kRows +
        vector / kRowVectors * kRows + vector % kRowVectors * 4);
    group_bytes = weight.vectors * (kRows * 4);
  }

  // Copies the next block, which is `block`. Lanes without a vector of scales copy scales of other
  // lanes to memory that nobody reads, which takes fewer instructions than a condition.
  __device__ __forceinline__ void load(std::uint32_t shared, int block) {
    constexpr int kLanes = kScaleBytes / 16;  // that have space for a vector of scales
    const int lane = threadIdx.x % 32;
    const std::uint32_t own = shared + lane * 16, own_scales = own + kCodeBytes;
    const char* const row =
        scales + std::uint64_t{std::uint32_t(packed.first_group(block))} * group_bytes;
#pragma unroll
    for (int i = 0; i < kCodeBytes / 512; ++i) ptx::cp_async(own + i * 512, codes + i * 512);
    if constexpr (kLanes < 32)
      ptx::cp_async_if(own_scales, row, kLanes, lane);
    else
      ptx::cp_async(own_scales, row);
    codes += kStep * kBlockBytes;
    if constexpr (kScaleBytes > 512)
      if (scale_vectors() > 32) ptx::cp_async(own_scales + 512, row + 32 / kRowVectors * kRows * 4);
  }

 private:
  // The vectors of a block, a power of two.
  __device__ int scale_vectors() const {
    return packed.groups_in_block * packed.vectors * kRowVectors;
  }
};

// The bytes of a block of kRows rows of a, in rows of 128 bytes with tile::swizzle128. Eight lanes
// copy a row: cp.async makes one request of what is one line of L2 and of shared memory, and else a
// request for each lane. Rows outside of a keep what the memory has: they are columns of the
// products, which nobody stores.
template <int kRows, int kStep>
struct MatrixLoader {
  static constexpr int kDepth = PackedLayout::kDepth, kRowBytes = kDepth * 2;
  static constexpr int kBytes = kRows * kRowBytes;
  static constexpr int kRowsAtOnce = 4;

  const char* next;        // this lane's first vector of the next block
  std::int64_t four_rows;  // bytes
  std::int32_t left_rows;  // from the first row of this lane
  std::int32_t left_k;     // from the next block
  std::uint32_t offset;    // of this lane's first vector in shared memory

  __device__ MatrixLoader(const TensorRef& a, const Extent& extent, int row, int batch,
                          int first_block) {
    const int in_row = threadIdx.x % 32 / 8, chunk = threadIdx.x % 8, first = row + in_row;
    const int k = first_block * kDepth;
    next = static_cast<const char*>(a.data) +
           2 * (batch * a.stride_batch + first * a.stride_row + k + chunk * 8);
    four_rows = 2 * kRowsAtOnce * a.stride_row;
    left_rows = extent.m - first;
    left_k = extent.k - k;
    offset = tile::swizzle128(in_row, chunk);
  }

  __device__ __forceinline__ void load(std::uint32_t shared, int) {
    if (__builtin_expect(left_k >= kDepth, true))
      load_rows(shared, [&](std::uint32_t to, const char* from, int row) {
        ptx::cp_async_if(to, from, left_rows, row);
      });
    else
      load_end(shared);
    next += kStep * kRowBytes;
    left_k -= kStep * kDepth;
  }

 private:
  // Rows row and row + 4 have other chunks of their rows of shared memory.
  template <class Copy>
  __device__ __forceinline__ void load_rows(std::uint32_t shared, const Copy& copy) const {
    const char* from = next;
    const std::uint32_t even = shared + offset, odd = shared + (offset ^ 64);
#pragma unroll
    for (int i = 0; i < kRows / kRowsAtOnce; ++i, from += four_rows)
      copy((i % 2 == 0 ? even : odd) + i * kRowsAtOnce * kRowBytes, from, i * kRowsAtOnce);
  }

  __device__ __forceinline__ void load_end(std::uint32_t shared) const {
    const int bytes = min(max(2 * (left_k - int(threadIdx.x) % 8 * 8), 0), 16);
    load_rows(shared, [&](std::uint32_t to, const char* from, int row) {
      if (left_rows > row) ptx::cp_async(to, from, bytes);
    });
  }
};

template <GemmConfig kConfig>
struct PackedGemvMainloop {
  static_assert(kConfig.is_gemv() && kConfig.layout == Layout::TN);
  static constexpr int kRows = kConfig.tile_m(), kColumns = kConfig.tile_n();
  static_assert(PackedLayout::kRows % kColumns == 0);
  static constexpr tile::RowOrder kColumnOrder = tile::RowOrder::interleaved;
  static constexpr int kWarps = kConfig.warpgroups * 4;
  static constexpr int kRowsAtOnce = kRows / 8, kStep = kWarps * kConfig.gemv_cluster();
  using Sum = float;
  using Sums = float[kColumns / 16][kRowsAtOnce][4];
  using LoaderA = MatrixLoader<kRows, kStep>;
  using LoaderB =
      PackedLoader<kConfig.weight_bits, kColumns, kConfig.packed_scale_bytes(kColumns), kStep>;
  static constexpr int kSteps = PackedLayout::kSteps;
  static constexpr int kVectors = kConfig.weight_bits / 4;  // of 16 bytes that a lane decodes
  static constexpr int kScaleRowBytes = kColumns * 4;

  __device__ static void multiply(const CpAsyncParams& params, std::uint32_t memory, int row,
                                  int col, int batch, int rank, Sums& sums) {
    const PackedParams& packed = params.packed;
    const int first = rank * kWarps + ptx::uniform(threadIdx.x / 32);
    LoaderB b(packed, col, first);
    const GemvPipeline<kConfig, true, LoaderA, LoaderB> pipeline(params, memory, rank, b);
    const std::uint32_t code_pairs =
        memory + kConfig.stages * kConfig.stage_bytes() + kConfig.gemv_sums_bytes();
    const auto make_a = [&] { return LoaderA(params.a, params.extent, row, batch, first); };
    LoaderA a = pipeline.begin(params, make_a, [&] {
      if constexpr (kConfig.table_bytes() > 0)
        tile::fill_code_pairs<kConfig.input, kConfig.threads() / 32>(packed, code_pairs);
    });
    tile::for_layout<kConfig.weight_bits>(
        packed, [&]<WeightFormat kFormat, WeightZeros kZeros, int kGroups>() {
          pipeline.run(a, [&](std::uint32_t stage) {
            multiply_block<kFormat, kZeros, kGroups>(code_pairs, stage, sums);
          });
        });
  }

 private:
  // The elements of a block of a that a lane has in fragments of b of mma.sync: two registers for
  // each step.
  using Activation = std::uint32_t[kRowsAtOnce][2 * kSteps];
  using Fragment = float[kRowsAtOnce][4];

  __device__ static void load_activation(std::uint32_t shared, Activation& a) {
    const int row = threadIdx.x % 8, matrix = threadIdx.x % 32 / 8;
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        ptx::ldmatrix_x4<false>(reinterpret_cast<std::uint32_t (&)[4]>(a[i][4 * half]),
                                shared + tile::swizzle128(8 * i + row, 4 * half + matrix));
  }

  // The codes of int4 are multiplied above kBase, which saves a subtraction for each of them: the
  // products of a group start at -(kBase + zero) times the sum of the row of a. mma.sync adds it:
  // its rows of the weight are all equal to one number, so the result is a fragment to start with.
  template <WeightFormat kFormat, WeightZeros kZeros, int kGroups>
  __device__ __forceinline__ static void multiply_block(std::uint32_t code_pairs,
                                                        std::uint32_t stage, Sums& sums) {
    constexpr bool kAboveBase = kFormat == WeightFormat::int4;
    constexpr int kGroupSteps = kSteps / kGroups;
    constexpr int kGroupBytes = (kZeros == WeightZeros::none ? 1 : 2) * kScaleRowBytes;
    Activation a;
    load_activation(stage + LoaderB::kBytes, a);
    const int lane = threadIdx.x % 32;
    constexpr bool kStartsAtEight = kAboveBase && kZeros == WeightZeros::none;
    [[maybe_unused]] Fragment totals[kGroups];  // kStartsAtEight: the start of the products
    if constexpr (kAboveBase) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        add_rows<kGroupSteps, kStartsAtEight>(a, group * kGroupSteps, totals[group]);
    }
    [[maybe_unused]] const tile::Decoder<kConfig.input, kFormat> decoder(code_pairs);
    const std::uint32_t codes = stage + lane * 16;
    const std::uint32_t scales = stage + LoaderB::kCodeBytes + lane / 4 * 8;
#pragma unroll
    for (int unit = 0; unit < kColumns / 16; ++unit) {
      uint4 words[kVectors];
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        words[i] = ptx::load_shared_vector(codes + unit * LoaderB::kUnitBytes + i * 512);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const std::uint32_t of_group = scales + group * kGroupBytes + unit * 64;
        [[maybe_unused]] float2 second;
        if constexpr (kZeros != WeightZeros::none) second = load_pair(of_group + kScaleRowBytes);
        Fragment products = {};
        if constexpr (kStartsAtEight)
          copy(totals[group], products);
        else if constexpr (kAboveBase)
          begin_above(kZeros == WeightZeros::points ? second : float2{8, 8}, totals[group],
                      products);
#pragma unroll
        for (int step = group * kGroupSteps; step < (group + 1) * kGroupSteps; ++step) {
          std::uint32_t weight[4];
          if constexpr (kAboveBase)
            tile::decode_above_base<kConfig.input>(tile::word_of(words[0], step), weight);
          else
            decoder.decode(words, step, weight);
#pragma unroll
          for (int i = 0; i < kRowsAtOnce; ++i)
            ptx::mma_sync<kConfig.input, kConfig.input>(products[i], weight, &a[i][2 * step]);
        }
        const float2 scale = load_pair(of_group);
#pragma unroll
        for (int i = 0; i < kRowsAtOnce; ++i)
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            float& sum = sums[unit][i][r];
            sum += (r < 2 ? scale.x : scale.y) * products[i][r];
            if constexpr (kZeros == WeightZeros::offsets)
              sum += (r < 2 ? second.x : second.y) * totals[group][i][r % 2];
          }
      }
    }
  }

  __device__ static void copy(const Fragment& from, Fragment& to) {
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) to[i][r] = from[i][r];
  }

  // `zeros` of the lane's two rows of the weight.
  __device__ static void begin_above(float2 zeros, const Fragment& totals, Fragment& products) {
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        products[i][r] = -(tile::kBase + (r < 2 ? zeros.x : zeros.y)) * totals[i][r];
  }

  // The sums of the rows of a over the steps of a group, or -(kBase + 8) times them.
  template <int kGroupSteps, bool kStartsAtEight>
  __device__ static void add_rows(const Activation& a, int first, Fragment& totals) {
    const std::uint32_t number =
        ptx::Pair<kConfig.input>(kStartsAtEight ? -(tile::kBase + 8) : 1.0f).bits();
    const std::uint32_t numbers[4] = {number, number, number, number};
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) totals[i][r] = 0.0f;
#pragma unroll
      for (int step = 0; step < kGroupSteps; ++step)
        ptx::mma_sync<kConfig.input, kConfig.input>(totals[i], numbers, &a[i][2 * (first + step)]);
    }
  }

  __device__ static float2 load_pair(std::uint32_t address) {
    const uint2 pair = ptx::load_shared_pair(address);
    return {__uint_as_float(pair.x), __uint_as_float(pair.y)};
  }
};

}  // namespace tcgemm::gemv
