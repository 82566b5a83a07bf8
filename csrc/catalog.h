// The table of kernels: one row per compiled kernel. Kernels are instantiated from it, the planner
// chooses from it, and the README's support table, `tcgemm.info` and the tests read it.
//
// A row is a C++20 structural value and the one template argument of its kernel, so adding a kernel
// is adding a row. A tile is tile_m x tile_n of the result and tile_k of depth in one stage:
//
//   sm90a  warpgroups * m64_blocks * 64 rows: each warpgroup owns m64_blocks wgmma rows, n wide
//   sm80   the same block of threads as warps of mma.sync: see kernels/sm80/kernel.cuh
//
// The axes after `stages` stand at their plain value in every row of today. They are the ones that
// fp8, fp32-accurate, sparse and transposing rows will move; a mainloop refuses, when it is
// compiled, a value that it does not serve.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/arch.h"
#include "core/dtype.h"
#include "core/layout.h"

namespace tcgemm {

// Where wgmma reads its first operand: from shared memory, or from registers that a loader fills.
enum class SourceOfA : std::uint8_t { shared, registers };

// Operands lie in shared memory in blocks of 64 rows of 64 elements (128 bytes: the widest
// swizzle).
inline constexpr int kBlock = 64;

// Each warp turns 16-bit results through a slab of its own, 16 rows of 128 bytes: a box of TMA's.
inline constexpr int kBoxRows = 16;
inline constexpr int kBoxColumns = 64;
inline constexpr int kSlabBytes = kBoxRows * 128;

struct Kernel {
  Arch arch = Arch::sm90a;
  DType input = DType::bf16;
  DType accumulator = DType::f32;
  Layout layout = Layout::TN;
  int warpgroups = 2;   // those that compute; sm90a adds one that loads
  int m64_blocks = 1;   // blocks of 64 rows a warpgroup
  int n = 256;          // columns of the tile
  int stages = 4;       // depth of the shared-memory ring
  int parts = 1;        // 16-bit parts that an operand is split into
  int promote = 0;      // k-blocks between additions to a second accumulator; 0: never
  bool sparse = false;  // 2:4 in a
  bool block_scaled = false;
  SourceOfA source_of_a = SourceOfA::shared;

  constexpr bool plain() const {
    return parts == 1 && promote == 0 && !sparse && !block_scaled &&
           source_of_a == SourceOfA::shared;
  }
  constexpr int tile_m() const { return warpgroups * m64_blocks * 64; }
  constexpr int tile_n() const { return n; }
  // One stage holds a row of 128 bytes of k: the widest swizzle, and what one TMA box can have.
  constexpr int tile_k() const { return 1024 / bits(input); }
  constexpr int threads() const { return 128 * (warpgroups + (arch == Arch::sm90a ? 1 : 0)); }
  constexpr int stage_bytes() const { return (tile_m() + tile_n()) * tile_k() * bits(input) / 8; }
  constexpr int slab_bytes() const { return warpgroups * 4 * kSlabBytes; }
  // Dynamic shared memory: the ring and its alignment; sm90a adds slabs and two barriers a stage,
  // sm80 puts its slabs into the ring, which leaves room for three stages on GPUs with 99 KB a
  // block.
  constexpr int shared_bytes() const {
    const int beside = arch == Arch::sm90a ? slab_bytes() + 16 * stages : 0;
    return stages * stage_bytes() + 1024 + beside;
  }
};

namespace catalog {

struct Tile {
  Arch arch;
  int warpgroups, m64_blocks, n, stages;
};

// sm90a: 128x256 is the fastest per FLOP, 192x192 fits the waves of 3072 and 6144, and the smaller
// ones fill 132 SMs when the result is small. 256x192, with fewer bytes a FLOP, was nowhere the
// best: 192 accumulators a thread leave three stages and spill in the epilogue. sm80: 128x256 and
// 128x128 reuse most from shared memory, 64x64 fills the machine.
inline constexpr Tile kTiles[] = {
    {Arch::sm90a, 2, 1, 256, 4}, {Arch::sm90a, 2, 2, 128, 4}, {Arch::sm90a, 3, 1, 192, 4},
    {Arch::sm90a, 2, 1, 192, 5}, {Arch::sm90a, 2, 1, 128, 6}, {Arch::sm90a, 1, 1, 256, 5},
    {Arch::sm90a, 1, 1, 128, 8}, {Arch::sm90a, 1, 1, 64, 12}, {Arch::sm80, 2, 1, 256, 3},
    {Arch::sm80, 2, 1, 128, 3},  {Arch::sm80, 1, 1, 64, 4},
};

struct Types {
  DType input, accumulator;
};

inline constexpr Types kTypes[] = {
    {DType::bf16, DType::f32}, {DType::f16, DType::f32}, {DType::f16, DType::f16}};

// An f16 accumulator brings no rate on Hopper, so it gets the tiles that serve every size and no
// more.
constexpr bool exists(const Tile& tile, const Types& types) {
  if (types.accumulator != DType::f16 || tile.arch == Arch::sm80) return true;
  return tile.m64_blocks == 1 && tile.n != 192 && tile.warpgroups != 3;
}

constexpr std::size_t count() {
  std::size_t rows = 0;
  for (const Tile& tile : kTiles)
    for (const Types& types : kTypes)
      if (exists(tile, types)) rows += kLayouts;
  return rows;
}

constexpr auto rows() {
  std::array<Kernel, count()> table{};
  std::size_t row = 0;
  for (const Tile& tile : kTiles)
    for (const Types& types : kTypes)
      for (int layout = 0; layout < kLayouts && exists(tile, types); ++layout)
        table[row++] = {tile.arch,      types.input,     types.accumulator,
                        Layout(layout), tile.warpgroups, tile.m64_blocks,
                        tile.n,         tile.stages};
  return table;
}

}  // namespace catalog

inline constexpr auto kCatalog = catalog::rows();

// A row's name, for people and for filters: sm90a_bf16_f32_128x256x64_w2_s4_tn.
struct KernelName {
  char text[64] = {};
  int length = 0;

  constexpr void add(std::string_view part) {
    for (char letter : part) text[length++] = letter;
  }
  constexpr void add(int number) {
    if (number >= 10) add(number / 10);
    text[length++] = char('0' + number % 10);
  }
  constexpr operator std::string_view() const { return {text, std::size_t(length)}; }
};

constexpr KernelName name(const Kernel& kernel) {
  KernelName result;
  result.add(name(kernel.arch));
  result.add("_");
  result.add(name(kernel.input));
  result.add("_");
  result.add(name(kernel.accumulator));
  result.add("_");
  result.add(kernel.tile_m());
  result.add("x");
  result.add(kernel.tile_n());
  result.add("x");
  result.add(kernel.tile_k());
  result.add("_w");
  result.add(kernel.warpgroups);
  result.add("_s");
  result.add(kernel.stages);
  result.add("_");
  for (char letter : std::string_view(name(kernel.layout))) result.add(letter == 'T' ? "t" : "n");
  return result;
}

// True if `text` contains one of the comma-separated words of `filter`, or the filter is empty.
constexpr bool matches(std::string_view text, std::string_view filter) {
  if (filter.empty()) return true;
  while (!filter.empty()) {
    const std::size_t comma = filter.find(',');
    const std::string_view word = filter.substr(0, comma);
    if (!word.empty() && text.find(word) != std::string_view::npos) return true;
    filter = comma == std::string_view::npos ? std::string_view{} : filter.substr(comma + 1);
  }
  return false;
}

#ifndef TCGEMM_KERNELS
#define TCGEMM_KERNELS ""
#endif
#ifndef TCGEMM_ARCHES
#define TCGEMM_ARCHES "8.0,8.0+PTX,9.0a"
#endif

// Is the row's code in this build? TCGEMM_KERNELS and TCGEMM_ARCHES are the build's choice.
constexpr bool built(const Kernel& kernel) {
  const bool arch = kernel.arch == Arch::sm80 || matches("9.0a", TCGEMM_ARCHES);
  return arch && matches(name(kernel), TCGEMM_KERNELS);
}

}  // namespace tcgemm
