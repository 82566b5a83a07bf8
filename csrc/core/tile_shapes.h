// The tiles of the kernels, with the reasons for their sizes. catalog.h makes rows of them.
#pragma once

namespace tcgemm::catalog {

struct TileShape {
  int warpgroups, m64_blocks, n, stages;
  bool pingpong = false;
  bool split_n = false;
  int gemv_rows = 0;
  int gemv_ctas = 1;
};

// sm90a: 128x256 is the fastest per FLOP, 192x192 fits the waves of 3072 and 6144, and the smaller
// tiles fill 132 SMs if the result is small. 256x192 loads fewer bytes per FLOP but was never the
// fastest: 192 accumulators per thread leave three stages and spill in the epilogue.
inline constexpr TileShape kSm90[] = {
    {2, 1, 256, 4}, {2, 2, 128, 4}, {3, 1, 192, 4}, {2, 1, 192, 5},      {2, 1, 128, 6},
    {1, 1, 256, 5}, {1, 1, 128, 8}, {1, 1, 64, 12}, {2, 1, 320, 3},      {2, 1, 224, 4},
    {2, 1, 208, 4}, {2, 1, 176, 5}, {2, 1, 144, 5}, {2, 2, 128, 6, true}};
// Few rows: so many columns that the tiles of 4096, 6144 and 28672 columns fill 132 SMs, with up to
// 64 rows or with 128 and 256.
inline constexpr TileShape kSm90Narrow[] = {
    {1, 1, 32, 18}, {1, 1, 48, 14}, {1, 1, 224, 5}, {2, 1, 48, 9}, {2, 1, 96, 7}};
// An FP16 accumulator is not faster on Hopper, so it has only one medium and one small tile.
inline constexpr TileShape kSm90F16[] = {{2, 1, 128, 6}, {1, 1, 64, 12}};
// Mixed 8-bit operands: one large, one medium and one small tile.
inline constexpr TileShape kSm90Few[] = {{2, 1, 256, 4}, {2, 1, 128, 6}, {1, 1, 64, 12}};
// Bits have short mainloops and results of 4 bytes. With pingpong one warpgroup stores while the
// other multiplies; 192 columns load the fewest bytes of its tiles.
inline constexpr TileShape kSm90Bits[] = {
    {2, 1, 256, 4}, {2, 1, 128, 6}, {1, 1, 64, 12}, {2, 2, 192, 4, true}};
// Promoted kernels have partial sums beside the accumulators. 128x192 fits the waves of 8192
// columns, and 128x144 the waves of 2112 columns.
inline constexpr TileShape kSm90Promoted[] = {{2, 1, 256, 4}, {2, 1, 192, 5}, {2, 1, 144, 5},
                                              {2, 1, 128, 6}, {1, 1, 128, 8}, {1, 1, 64, 12}};
inline constexpr TileShape kSm90PromotedFew[] = {{2, 1, 128, 6}};
// Split FP32: a stage holds all terms.
inline constexpr TileShape kSm90F16x2[] = {
    {2, 1, 256, 2}, {2, 1, 192, 2}, {2, 1, 128, 3}, {1, 1, 128, 4}, {1, 1, 64, 6}};
inline constexpr TileShape kSm90Bf16x3[] = {{2, 1, 256, 2}, {2, 1, 128, 4}};
// RS: A is loaded in boxes of 128 bytes of m, so a tile has at least 128 rows of s8.
inline constexpr TileShape kSm90Rs[] = {{2, 1, 256, 4}, {2, 1, 128, 6}, {2, 1, 64, 8}};
// 2:4: wgmma.sp reads the dense B at twice the usual rate, and a wide tile reads it the fewest
// times. The narrow tiles are for few columns; 64x64 and 64x32 would fill more SMs but took longer.
// 192x192 is 1.4 times as fast where 128x256 needs a second wave; with s32 it would spill.
inline constexpr TileShape kSm90Sparse[] = {{2, 1, 256, 5}, {3, 1, 192, 5}, {2, 1, 192, 6},
                                            {2, 1, 128, 8}, {2, 1, 64, 12}, {2, 1, 32, 16}};
inline constexpr TileShape kSm90SparseFp8[] = {{2, 1, 256, 5}, {3, 1, 192, 5}, {2, 1, 192, 6},
                                               {2, 1, 128, 8}, {2, 1, 64, 11}, {2, 1, 32, 14}};
inline constexpr TileShape kSm90SparseInt8[] = {
    {2, 1, 256, 5}, {2, 1, 192, 6}, {2, 1, 128, 8}, {2, 1, 64, 11}, {2, 1, 32, 14}};
inline constexpr TileShape kSm90SparseFew[] = {{2, 1, 256, 5}, {2, 1, 64, 10}};
// FP64: 128x128 is for large GEMMs, the others fit the waves of smaller GEMMs on 132 SMs: 128x112
// fits 4096 and 8192, 128x64 fits 1024. 64x128 is for few rows in slices of k. Eight warps
// multiply, because four leave the tensor cores idle for a third of the time. 64x16 has four: it is
// for results of fewer than 132 tiles.
inline constexpr TileShape kSm90F64[] = {{2, 1, 128, 5},
                                         {2, 1, 112, 6},
                                         {2, 1, 96, 6},
                                         {2, 1, 80, 6},
                                         {2, 1, 64, 7},
                                         {2, 1, 48, 8},
                                         {2, 1, 128, 7, false, true},
                                         {2, 1, 80, 9, false, true},
                                         {2, 1, 64, 11, false, true},
                                         {2, 1, 32, 15, false, true},
                                         {1, 1, 16, 16}};
// GEMV, for few rows, which the bytes of b bound. Tiles of 32, 48 and 64 columns divide 4096, 6144
// and 7168 columns among 132 SMs. With 16 rows a cluster of two shares a tile of twice the columns,
// so that a has fewer bytes than b. 32 rows pay off where the other kernels are slow.
// The number of warps decides the order of the sums: all tiles of a type that have no cluster have
// the same one.
inline constexpr TileShape kSm90Gemv[] = {{2, 1, 32, 4, false, false, 8},
                                          {2, 1, 48, 3, false, false, 8},
                                          {2, 1, 64, 3, false, false, 8},
                                          {2, 1, 64, 2, false, false, 16, 2}};
inline constexpr TileShape kSm90GemvFew[] = {{2, 1, 32, 4, false, false, 8},
                                             {2, 1, 64, 2, false, false, 16, 2}};
inline constexpr TileShape kSm90GemvF64[] = {{4, 1, 32, 2, false, false, 8},
                                             {2, 1, 64, 2, false, false, 16, 2},
                                             {2, 1, 64, 2, false, false, 32, 2}};
// Packed weights, whose rows are the rows of the tile. wgmma is for more than 32 rows of the
// activation. 64 columns have four warpgroups: the decoder bounds them, not wgmma. With mma.sync a
// warp has 32 rows of the weight, so that it reads the activation half as often.
inline constexpr TileShape kSm90Packed[] = {{2, 1, 256, 4}, {2, 1, 128, 6}, {4, 1, 64, 8}};
inline constexpr TileShape kSm90PackedMma[] = {{1, 2, 32, 8}, {1, 2, 16, 9}};
inline constexpr TileShape kSm90PackedGemv[] = {
    {4, 1, 32, 4, false, false, 8},  {2, 1, 32, 3, false, false, 8},
    {2, 1, 64, 2, false, false, 8},  {1, 1, 64, 3, false, false, 8},
    {4, 1, 32, 3, false, false, 16}, {2, 1, 32, 3, false, false, 16},
    {1, 1, 32, 3, false, false, 16}, {2, 1, 32, 2, false, false, 32}};
// On sm_80 a warp has 32 rows of the wide tiles, so that it reads the activation less often. 128
// columns would spill. The stages and a table fit 99 KB.
inline constexpr TileShape kSm80Packed[] = {{1, 2, 96, 3}, {1, 2, 64, 3}, {2, 1, 32, 4}};
inline constexpr TileShape kSm80PackedGemv[] = {{2, 1, 32, 2, false, false, 8},
                                                {2, 1, 32, 2, false, false, 16}};
// A cluster of two divides k, so that tiles of 64 columns fill the GPU for 4096 to 8192 columns.
// With 16 rows such clusters, and clusters of four for 128 columns, were never faster.
inline constexpr TileShape kSm90PackedGemvClusters[] = {{2, 1, 64, 2, false, false, 8, 2}};
// FP32 accumulated as FP64: 64x64 is also the tile of the recompute mask, and 64x32 fills the GPU
// at 512 x 512.
inline constexpr TileShape kSm90F32[] = {
    {2, 1, 128, 5}, {2, 1, 64, 6}, {1, 1, 64, 8}, {1, 1, 32, 10}};
// mma.sync: 128x256 and 128x128 reuse shared memory the most, 64x64 fills the GPU.
inline constexpr TileShape kSm80[] = {{2, 1, 256, 3}, {2, 1, 128, 3}, {1, 1, 64, 4}};
// int4 has no 128x256: in code for 9.0a, where ptxas unpacks it, such a tile spills.
inline constexpr TileShape kSm80Few[] = {{2, 1, 128, 3}, {1, 1, 64, 4}};
// FP64 of sm_80: three stages of 128x64 fit 99 KB.
inline constexpr TileShape kSm80F64[] = {{2, 1, 64, 3}, {1, 1, 64, 4}};
// mma.sp needs twice the fragments of B: 256 columns would spill.
inline constexpr TileShape kSm80Sparse[] = {{2, 1, 128, 3}, {1, 1, 64, 4}};

}  // namespace tcgemm::catalog
