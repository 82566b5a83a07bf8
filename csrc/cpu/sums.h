// How a tile's sums come to be from panels of its operands, one k block at a time.
//
//   Chain     sums go on from block to block: f16, bf16, f32 and fp8 (in f32), f64
//   Blocks    each block's sum is multiplied by its scales and added: fp8
//   Integers  each block's sum is exact in f32 and added in s32: s8, u8
//
// So one inner loop serves all of them. Plain x86-64, as the epilogue.
#pragma once

#include <cstdint>
#include <vector>

#include "core/problem.h"
#include "cpu/kernels.h"

namespace tcgemm::cpu {

// Of the result. The sums of element (i, j) of it stand at i * pitch + j.
struct Tile {
  std::int64_t batch, row, column, m, n, pitch;
};

// A k block of its operands.
template <class T>
struct Panels {
  std::int64_t k, depth;
  const T* a;
  const T* b;
};

// kApart: a block's sums start from zero, and `add` brings them to the totals.
// `values` are those of row i that the epilogue works on; they stand in either array.
template <class T>
class Chain {
 public:
  using Operand = T;
  using Total = T;
  static constexpr bool kApart = false;
  // A panel of b, 256 x 32 f32, is 32 KiB. A multiple of 16, so that an f16 accumulator is rounded
  // where it would be without blocks.
  static constexpr std::int64_t kDepth = 256;

  Chain(const Problem&, const Kernels<T>&) {}
  T* values(const Tile& tile, std::int64_t i, T* totals, T*) const {
    return totals + i * tile.pitch;
  }
};

class Blocks {
 public:
  using Operand = float;
  using Total = float;
  static constexpr bool kApart = true;
  static constexpr std::int64_t kDepth = kScaleBlock;

  Blocks(const Problem& problem, const Kernels<float>&) : p_(problem) {}
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

class Integers {
 public:
  using Operand = float;
  using Total = std::uint32_t;
  static constexpr bool kApart = true;
  // 256 products of at most 255 * 255 stay below 2^24.
  static constexpr std::int64_t kDepth = 256;

  Integers(const Problem& problem, const Kernels<float>& kernels)
      : p_(problem), kernels_(kernels) {}
  void start(const Tile& tile);
  void add(const Tile& tile, const Panels<float>& panels, const float* sums, std::uint32_t* totals);
  // totals - zero_a * (sums of b) - zero_b * (sums of a) + k * zero_a * zero_b, in place.
  std::uint32_t* exact(const Tile& tile, std::int64_t i, std::uint32_t* totals) const;
  float* values(const Tile& tile, std::int64_t i, std::uint32_t* totals, float* sums) const;

 private:
  const Problem& p_;
  const Kernels<float>& kernels_;
  std::vector<std::uint32_t> sums_a_, sums_b_;  // along k, where there are zero points
};

}  // namespace tcgemm::cpu
