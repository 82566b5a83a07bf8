// What one compiled kernel is: types, layout, tile and mainloop features, and the sizes that follow.
//
// GemmConfig is a C++20 structural value and the template argument of its kernel. A tile is
// tile_m x tile_n of the result and tile_k of depth in one stage:
//
//   sm90a  warpgroups * m64_blocks * 64 rows: each warpgroup owns m64_blocks wgmma rows, n wide
//   sm80   the same block of threads as warps of mma.sync: see kernels/sm80/kernel.cuh
//
// The fields after `stages` select mainloop features. Each mainloop static_asserts the combinations
// that it supports.
#pragma once

#include <cstdint>

#include "core/arch.h"
#include "core/dtype.h"
#include "core/layout.h"
#include "core/sparse.h"
#include "core/split_fp32.h"

namespace tcgemm {

// Where wgmma reads its first operand: from shared memory, or from registers that a loader fills.
enum class OperandSource : std::uint8_t { SS, RS };

// Operands lie in shared memory in blocks of 64 rows of 64 elements (128 bytes: the widest
// swizzle).
inline constexpr int kBlock = 64;

// Lines of operands whose products are added up as f64 are up to this many bytes longer in shared
// memory: see kernels/sm90/fp64/producer.cuh.
inline constexpr int kPadBytes = 32;

// Each warp turns 16-bit results through a slab of its own, 16 rows of 128 bytes: a box of TMA's.
inline constexpr int kBoxRows = 16;
inline constexpr int kBoxColumns = 64;
inline constexpr int kStagingBytes = kBoxRows * 128;
// Column-major ones leave in boxes of 64 rows, half of what a warpgroup's slabs hold.
inline constexpr int kStoreColumns = 2 * kStagingBytes / 128;

struct GemmConfig {
  Arch arch = Arch::sm90a;
  DType input = DType::bf16;    // of a
  DType input_b = DType::bf16;  // of b: another one in mixed fp8 and int8 products
  DType accumulator = DType::f32;
  Layout layout = Layout::TN;
  int warpgroups = 2;   // those that compute; sm90a adds one that loads
  int m64_blocks = 1;   // blocks of 64 rows a warpgroup
  int n = 256;          // columns of the tile
  int stages = 4;       // depth of the shared-memory ring
  int terms = 1;        // 16-bit parts that an operand is split into
  int promote = 0;      // k-blocks between additions to a second accumulator; 0: never
  bool sparse = false;  // a is, along k: core/sparse.h
  bool block_scaled = false;
  OperandSource operand_source = OperandSource::SS;

  constexpr bool is_dense_ss() const {
    return terms == 1 && promote == 0 && !sparse && !block_scaled &&
           operand_source == OperandSource::SS;
  }
  // Lanes hold neighbours of a column: tile::RowOrder::interleaved.
  constexpr bool interleaved_rows() const { return operand_source == OperandSource::RS || sparse; }
  // Column-major results of this type, and of no other, leave by TMA: tile/tma_store_columns.cuh.
  constexpr DType column_store_dtype() const { return bits(input) == 16 ? input : DType::bf16; }
  constexpr bool tma_stores_columns() const {
    return interleaved_rows() && uses_tma() && n % (2 * kStoreColumns) == 0;
  }
  // Fed by TMA from tensor maps (TmaParams); the others, those that add up f64 among them, read
  // any strides and alignment by cp.async (CpAsyncParams).
  constexpr bool uses_tma() const { return arch == Arch::sm90a && accumulator != DType::f64; }
  // Sums of a k-block are added, scaled or not, to a second set of accumulators.
  constexpr bool promotes() const { return promote != 0 || block_scaled; }
  constexpr int tile_m() const { return warpgroups * m64_blocks * 64; }
  constexpr int tile_n() const { return n; }
  // One stage holds a row of 128 bytes of k: the widest swizzle, and what one TMA box can have. Of
  // three parts there is room for half of that.
  constexpr int row_bytes() const { return terms == kBf16Terms ? 64 : 128; }
  constexpr int tile_k() const { return row_bytes() * 8 / bits(input); }
  // Of a, which has half of it where it is sparse, and metadata.
  constexpr int row_bytes_a() const { return sparse ? row_bytes() / 2 : row_bytes(); }
  constexpr int metadata_bytes() const {
    return sparse ? int(MetadataTiles{tile_m(), tile_k(), bits(input)}.tile_bytes()) : 0;
  }
  // m or n in a box of MN-major lines: 128 bytes.
  constexpr int box_mn() const { return 1024 / bits(input); }
  // sm90a: a warpgroup of its own loads.
  constexpr int threads() const { return 128 * (warpgroups + (arch == Arch::sm90a ? 1 : 0)); }
  constexpr int pad() const { return accumulator == DType::f64 ? kPadBytes / bytes(input) : 0; }
  // What a stage is filled with, and its place: swizzles begin at multiples of 1024 bytes.
  constexpr int loaded_bytes() const {
    const int padding = pad() * bytes(input);
    return terms * (tile_m() * (row_bytes_a() + padding) + tile_n() * (row_bytes() + padding)) +
           metadata_bytes();
  }
  constexpr int stage_bytes() const {
    return uses_tma() ? (loaded_bytes() + 1023) / 1024 * 1024 : loaded_bytes();
  }
  constexpr int staging_bytes() const { return warpgroups * 4 * kStagingBytes; }
  // Scales of the columns of a tile for one k-block.
  constexpr int scale_bytes() const { return block_scaled ? tile_n() * 4 : 0; }
  // Their ring is the deeper one: they are small, and come later than what TMA loads.
  constexpr int scale_stages() const { return block_scaled ? 2 * stages : 0; }
  // Dynamic shared memory: the ring; sm90a adds slabs, but for f64 results, scales and two barriers
  // a stage. sm80 puts its slabs into the ring, which leaves room for three stages on GPUs with 99
  // KB a block.
  constexpr int shared_bytes() const {
    const int ring = stages * stage_bytes();
    if (arch != Arch::sm90a) return ring;
    const int staging = input == DType::f64 ? 0 : staging_bytes();
    return ring + staging + 16 * stages + scale_stages() * (scale_bytes() + 16);
  }
};

}  // namespace tcgemm
