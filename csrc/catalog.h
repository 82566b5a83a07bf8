// The table of kernels: one row per compiled kernel. Kernels are instantiated from it, the planner
// chooses from it, and the README's support table, `tcgemm.info` and the tests read it.
//
// A row is a C++20 structural value and the one template argument of its kernel, so adding a kernel is
// adding a row. Tiles:
//
//   sm90a  tile_m = warpgroups * m64_blocks * 64 (each warpgroup owns its m64 blocks), tile_n = n
//   sm80   tile_m = warps_m * warp_m, tile_n = warps_n * warp_n; n = tile_n, warpgroups = threads / 128
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/arch.h"
#include "core/dtype.h"
#include "core/layout.h"

namespace tcgemm {

struct Kernel {
  Arch arch = Arch::sm90a;
  DType input = DType::bf16;
  DType accumulator = DType::f32;
  Layout layout = Layout::TN;
  int warpgroups = 2;     // those that compute; sm90a adds one that loads
  int m64_blocks = 1;     // blocks of 64 rows a warpgroup
  int n = 256;            // columns of the tile
  int stages = 4;         // depth of the shared-memory ring
  int k_steps = 4;        // instructions along k in one stage

  constexpr bool operator==(const Kernel&) const = default;
  constexpr int tile_m() const { return warpgroups * m64_blocks * 64; }
  constexpr int tile_n() const { return n; }
  constexpr int tile_k() const { return k_steps * 256 / bits(input); }
};

namespace catalog {

struct Tile {
  int warpgroups, m64_blocks, n, stages, k_steps;
};

// Why these tiles: 128x256 is the fastest per FLOP up to 4096, 256x192 has the least traffic and wins
// from 8192 on, 192x192 fits 3072's waves; the smaller ones fill 132 SMs when the result is small.
inline constexpr Tile kSm90[] = {
    {2, 1, 256, 4, 4}, {2, 2, 192, 3, 4}, {2, 2, 128, 4, 4}, {3, 1, 192, 4, 4},
    {2, 1, 192, 5, 4}, {2, 1, 128, 6, 4}, {1, 1, 256, 5, 4}, {1, 1, 128, 8, 4}, {1, 1, 64, 8, 4},
};
inline constexpr Tile kSm80[] = {{2, 1, 256, 3, 4}, {2, 1, 128, 4, 4}, {1, 1, 64, 4, 4}};

}  // namespace catalog
}  // namespace tcgemm
