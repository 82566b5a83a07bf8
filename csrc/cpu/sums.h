// The accumulation of a tile over the k blocks of its operands.
#pragma once

#include <cstdint>
#include <vector>

#include "core/problem.h"
#include "cpu/kernels.h"

namespace tcgemm::cpu {

// A tile of the result. The sum of its element (i, j) is at i * pitch + j.
struct Tile {
  std::int64_t batch, row, column, m, n, pitch;
};

// The panels of one k-block of a tile.
template <class T>
struct Panels {
  std::int64_t k, depth;
  const T* a;
  const T* b;
};

// The three ways to add up the blocks along k:
//
//   FmaChain          the chain continues from block to block: f16, bf16, f32 and fp8 in f32, f64
//   BlockScaledSums   each block's sum is multiplied by its scales and added: fp8
//   IntegerSums       each block's sum is exact in f32 and added in s32: s8, u8, s4, u4
//
// All of them use the same inner loop. Like the epilogue, they are compiled for plain x86-64.
//
// kSeparateTotals: the sums of a block start from zero, and `add` adds them to the totals. `values`
// is row i for the epilogue, in the totals or in the sums.
template <class T>
class FmaChain {
 public:
  using Operand = T;
  using Total = T;
  static constexpr bool kSeparateTotals = false;
  // A panel of b, 256 x 32 f32, is 32 KiB. A multiple of 16 rounds an f16 accumulator at the same
  // steps as one block would.
  static constexpr std::int64_t kDepth = 256;

  FmaChain(const Problem&, const Kernels<T>&) {}
  T* values(const Tile& tile, std::int64_t i, T* totals, T*) const {
    return totals + i * tile.pitch;
  }
};

class BlockScaledSums {
 public:
  using Operand = float;
  using Total = float;
  static constexpr bool kSeparateTotals = true;
  static constexpr std::int64_t kDepth = kScaleBlock;

  BlockScaledSums(const Problem& problem, const Kernels<float>&) : p_(problem) {}
  void start(const Tile&) {}
  // totals += (scale_a * scale_b) * sums
  void add(const Tile& tile, const Panels<float>& panels, const float* sums, float* totals);
  float* values(const Tile& tile, std::int64_t i, float* totals, float*) const {
    return totals + i * tile.pitch;
  }

 private:
  const Problem& p_;
  std::vector<float> scales_b_;
};

class IntegerSums {
 public:
  using Operand = float;
  using Total = std::uint32_t;
  static constexpr bool kSeparateTotals = true;
  // 256 products of at most 255 * 255 stay below 2^24.
  static constexpr std::int64_t kDepth = 256;

  IntegerSums(const Problem& problem, const Kernels<float>& kernels)
      : p_(problem), kernels_(kernels) {}
  void start(const Tile& tile);
  void add(const Tile& tile, const Panels<float>& panels, const float* sums, std::uint32_t* totals);
  // totals - zero_a * (sums of b) - zero_b * (sums of a) + k * zero_a * zero_b, in place.
  std::uint32_t* exact(const Tile& tile, std::int64_t i, std::uint32_t* totals) const;
  float* values(const Tile& tile, std::int64_t i, std::uint32_t* totals, float* sums) const;

 private:
  const Problem& p_;
  const Kernels<float>& kernels_;
  std::vector<std::uint32_t> sums_a_, sums_b_;  // along k, if there are zero points
};

}  // namespace tcgemm::cpu
