// The tiles of the kernels, with the reasons for their sizes. catalog.h makes rows of them.
#pragma once

#include "core/gemm_config.h"

namespace tcgemm::catalog {

// sm90a: 128x256 is the fastest per FLOP, 192x192 fits the waves of 3072 and 6144, and the smaller
// tiles fill 132 SMs if the result is small. 256x192 loads fewer bytes per FLOP but was never the
// fastest: 192 accumulators per thread leave three stages and spill in the epilogue.
inline constexpr TileShape kSm90[] = {{.n = 256, .stages = 4},
                                      {.warpgroups = 3, .n = 192, .stages = 4},
                                      {.n = 192, .stages = 5},
                                      {.n = 128, .stages = 6},
                                      {.warpgroups = 1, .n = 256, .stages = 5},
                                      {.warpgroups = 1, .n = 128, .stages = 8},
                                      {.warpgroups = 1, .n = 64, .stages = 12},
                                      {.n = 208, .stages = 4},
                                      {.n = 176, .stages = 5},
                                      {.n = 144, .stages = 5},
                                      {.m64_blocks = 2, .n = 128, .stages = 6, .pingpong = true}};
// Few rows: so many columns that the tiles of 4096, 6144 and 28672 columns fill 132 SMs, with up to
// 64 rows or with 128 and 256. These and the wider tile are faster for few other products, so only
// TN, the layout of layers, has them.
inline constexpr TileShape kSm90Narrow[] = {{.warpgroups = 1, .n = 32, .stages = 18},
                                            {.warpgroups = 1, .n = 48, .stages = 14},
                                            {.warpgroups = 1, .n = 224, .stages = 5},
                                            {.n = 224, .stages = 4},
                                            {.n = 96, .stages = 7}};
// Large FP8 products, and results of 16 bits that it fits. Other types gain nothing.
inline constexpr TileShape kSm90Wide[] = {{.n = 320, .stages = 3}};
// Grouped products: a large tile, pingpong for a short k, and a tile for short groups. The second
// list divides k, for gradients of weights.
inline constexpr TileShape kSm90Grouped[] = {
    {.n = 256, .stages = 4, .grouped = Axis::m},
    {.m64_blocks = 2, .n = 128, .stages = 6, .pingpong = true, .grouped = Axis::m},
    {.warpgroups = 1, .n = 128, .stages = 8, .grouped = Axis::m}};
inline constexpr TileShape kSm90GroupedK[] = {{.n = 256, .stages = 4, .grouped = Axis::k},
                                              {.n = 128, .stages = 6, .grouped = Axis::k}};
// For results that are stored by columns. Of 20 such tiles, these made a set of 169 problems faster
// on an H200 (docs/dev/kernels/column_stores.md).
inline constexpr TileShape kSm90Columns[] = {
    {.warpgroups = 1, .n = 80, .stages = 12, .columns_only = true},
    {.warpgroups = 1, .n = 96, .stages = 10, .columns_only = true},
    {.warpgroups = 1, .n = 192, .stages = 6, .columns_only = true},
    {.n = 80, .stages = 8, .columns_only = true},
    {.n = 112, .stages = 7, .columns_only = true},
    {.n = 160, .stages = 5, .columns_only = true},
    {.m64_blocks = 2, .n = 144, .stages = 4, .columns_only = true}};
// An FP16 accumulator is not faster on Hopper, so it has only one medium and one small tile.
inline constexpr TileShape kSm90F16[] = {{.n = 128, .stages = 6},
                                         {.warpgroups = 1, .n = 64, .stages = 12}};
// Mixed 8-bit operands: one large, one medium and one small tile.
inline constexpr TileShape kSm90Few[] = {
    {.n = 256, .stages = 4}, {.n = 128, .stages = 6}, {.warpgroups = 1, .n = 64, .stages = 12}};
// Bits have short mainloops and results of 4 bytes. With pingpong one warpgroup stores while the
// other multiplies; 192 columns load the fewest bytes of its tiles.
inline constexpr TileShape kSm90Bits[] = {
    {.n = 256, .stages = 4},
    {.n = 128, .stages = 6},
    {.warpgroups = 1, .n = 64, .stages = 12},
    {.m64_blocks = 2, .n = 192, .stages = 4, .pingpong = true}};
// Promoted kernels have partial sums beside the accumulators. 128x192 fits the waves of 8192
// columns, and 128x144 the waves of 2112 columns.
inline constexpr TileShape kSm90Promoted[] = {{.n = 256, .stages = 4},
                                              {.n = 192, .stages = 5},
                                              {.n = 144, .stages = 5},
                                              {.n = 128, .stages = 6},
                                              {.warpgroups = 1, .n = 128, .stages = 8},
                                              {.warpgroups = 1, .n = 64, .stages = 12}};
inline constexpr TileShape kSm90PromotedFew[] = {{.n = 128, .stages = 6}};
// Large block-scaled products: while one of three warpgroups scales and adds, two multiply.
inline constexpr TileShape kSm90BlockScaled[] = {{.warpgroups = 3, .n = 128, .stages = 4}};
// Split FP32: a stage holds all terms.
inline constexpr TileShape kSm90F16x2[] = {{.n = 256, .stages = 2},
                                           {.n = 192, .stages = 2},
                                           {.n = 128, .stages = 3},
                                           {.warpgroups = 1, .n = 128, .stages = 4},
                                           {.warpgroups = 1, .n = 64, .stages = 6}};
inline constexpr TileShape kSm90Bf16x3[] = {{.n = 256, .stages = 2}, {.n = 128, .stages = 4}};
// Two TF32 terms: for few rows, whose other operand is large. A stage has both terms of b.
inline constexpr TileShape kSm90Tf32x2[] = {{.n = 64, .stages = 6},
                                            {.warpgroups = 1, .n = 64, .stages = 8}};
// RS: A is loaded in boxes of 128 bytes of m, so a tile has at least 128 rows of s8.
inline constexpr TileShape kSm90Rs[] = {
    {.n = 256, .stages = 4}, {.n = 128, .stages = 6}, {.n = 64, .stages = 8}};
// 2:4: wgmma.sp reads the dense B at twice the usual rate, and a wide tile reads it the fewest
// times. The narrow tiles are for few columns; 64x64 and 64x32 would fill more SMs but took longer.
// 192x192 is 1.4 times as fast where 128x256 needs a second wave; with s32 it would spill.
inline constexpr TileShape kSm90Sparse[] = {
    {.n = 256, .stages = 5}, {.warpgroups = 3, .n = 192, .stages = 5},
    {.n = 192, .stages = 6}, {.n = 128, .stages = 8},
    {.n = 64, .stages = 12}, {.n = 32, .stages = 16}};
inline constexpr TileShape kSm90SparseFp8[] = {
    {.n = 256, .stages = 5}, {.warpgroups = 3, .n = 192, .stages = 5},
    {.n = 192, .stages = 6}, {.n = 128, .stages = 8},
    {.n = 64, .stages = 11}, {.n = 32, .stages = 14}};
inline constexpr TileShape kSm90SparseInt8[] = {{.n = 256, .stages = 5},
                                                {.n = 192, .stages = 6},
                                                {.n = 128, .stages = 8},
                                                {.n = 64, .stages = 11},
                                                {.n = 32, .stages = 14}};
inline constexpr TileShape kSm90SparseFew[] = {{.n = 256, .stages = 5}, {.n = 64, .stages = 10}};
// FP64: 128x128 is for large GEMMs, the others fit the waves of smaller GEMMs on 132 SMs: 128x112
// fits 4096 and 8192, 128x64 fits 1024. 64x128 is for few rows in slices of k. Eight warps
// multiply, because four leave the tensor cores idle for a third of the time. 64x16 has four: it is
// for results of fewer than 132 tiles.
inline constexpr TileShape kSm90F64[] = {{.n = 128, .stages = 5},
                                         {.n = 112, .stages = 6},
                                         {.n = 96, .stages = 6},
                                         {.n = 80, .stages = 6},
                                         {.n = 64, .stages = 7},
                                         {.n = 48, .stages = 8},
                                         {.n = 128, .stages = 7, .split_n = true},
                                         {.n = 80, .stages = 9, .split_n = true},
                                         {.n = 64, .stages = 11, .split_n = true},
                                         {.n = 32, .stages = 15, .split_n = true},
                                         {.warpgroups = 1, .n = 16, .stages = 16}};
// GEMV, for few rows, which the bytes of b bound. Tiles of 32, 48 and 64 columns divide 4096, 6144
// and 7168 columns among 132 SMs. With 16 rows a cluster of two shares a tile of twice the columns,
// so that a has fewer bytes than b. 32 rows pay off where the other kernels are slow.
// The number of warps decides the order of the sums: all tiles of a type that have no cluster have
// the same one.
inline constexpr TileShape kSm90Gemv[] = {{.n = 32, .stages = 4, .gemv_rows = 8},
                                          {.n = 48, .stages = 3, .gemv_rows = 8},
                                          {.n = 64, .stages = 3, .gemv_rows = 8},
                                          {.n = 64, .stages = 2, .gemv_rows = 16, .gemv_ctas = 2}};
inline constexpr TileShape kSm90GemvFew[] = {
    {.n = 32, .stages = 4, .gemv_rows = 8},
    {.n = 64, .stages = 2, .gemv_rows = 16, .gemv_ctas = 2}};
inline constexpr TileShape kSm90GemvF64[] = {
    {.warpgroups = 4, .n = 32, .stages = 2, .gemv_rows = 8},
    {.n = 64, .stages = 2, .gemv_rows = 16, .gemv_ctas = 2},
    {.n = 64, .stages = 2, .gemv_rows = 32, .gemv_ctas = 2}};
// Packed weights, whose rows are the rows of the tile. wgmma is for more than 32 rows of the
// activation. 64 columns have four warpgroups: the decoder bounds them, not wgmma. With mma.sync a
// warp has 32 rows of the weight, so that it reads the activation half as often.
inline constexpr TileShape kSm90Packed[] = {{.n = 256, .stages = 4},
                                            {.n = 192, .stages = 5},
                                            {.n = 160, .stages = 6},
                                            {.n = 128, .stages = 6},
                                            {.warpgroups = 4, .n = 64, .stages = 8}};
inline constexpr TileShape kSm90PackedMma[] = {
    {.warpgroups = 1, .m64_blocks = 2, .n = 32, .stages = 8},
    {.warpgroups = 1, .m64_blocks = 2, .n = 16, .stages = 9}};
inline constexpr TileShape kSm90PackedGemv[] = {
    {.warpgroups = 4, .n = 32, .stages = 4, .gemv_rows = 8},
    {.n = 32, .stages = 3, .gemv_rows = 8},
    {.n = 64, .stages = 2, .gemv_rows = 8},
    {.warpgroups = 1, .n = 64, .stages = 3, .gemv_rows = 8},
    {.warpgroups = 4, .n = 32, .stages = 3, .gemv_rows = 16},
    {.n = 32, .stages = 3, .gemv_rows = 16},
    {.warpgroups = 1, .n = 32, .stages = 3, .gemv_rows = 16},
    {.n = 32, .stages = 2, .gemv_rows = 32}};
// Many rows, few columns and a short k: kernels/thin. A stage has all of b.
inline constexpr TileShape kSm90Thin[] = {{.warpgroups = 1, .n = 32, .stages = 1},
                                          {.warpgroups = 1, .n = 64, .stages = 1}};
// On sm_80 a warp has 32 rows of the wide tiles, so that it reads the activation less often. 128
// columns would spill. The stages and a table fit 99 KB.
inline constexpr TileShape kSm80Packed[] = {
    {.warpgroups = 1, .m64_blocks = 2, .n = 96, .stages = 3},
    {.warpgroups = 1, .m64_blocks = 2, .n = 64, .stages = 3},
    {.n = 32, .stages = 4}};
inline constexpr TileShape kSm80PackedGemv[] = {{.n = 32, .stages = 2, .gemv_rows = 8},
                                                {.n = 32, .stages = 2, .gemv_rows = 16}};
// A cluster of two divides k, so that tiles of 64 columns fill the GPU for 4096 to 8192 columns.
// One of four small CTAs is for a long k. With 16 rows clusters were never faster, and neither were
// clusters of four and eight for 64 and 128 columns.
inline constexpr TileShape kSm90PackedGemvClusters[] = {
    {.n = 64, .stages = 2, .gemv_rows = 8, .gemv_ctas = 2},
    {.warpgroups = 1, .n = 32, .stages = 3, .gemv_rows = 8, .gemv_ctas = 4}};
// FP32 accumulated as FP64: 64x64 is also the tile of the recompute mask, and 64x32 fills the GPU
// at 512 x 512.
inline constexpr TileShape kSm90F32[] = {{.n = 128, .stages = 5},
                                         {.n = 64, .stages = 6},
                                         {.warpgroups = 1, .n = 64, .stages = 8},
                                         {.warpgroups = 1, .n = 32, .stages = 10}};
inline constexpr TileShape kSm90GroupedF32[] = {{.n = 64, .stages = 6, .grouped = Axis::m}};
inline constexpr TileShape kSm90GroupedKF32[] = {{.n = 64, .stages = 6, .grouped = Axis::k}};
inline constexpr TileShape kSm90GroupedF64[] = {{.n = 64, .stages = 7, .grouped = Axis::m}};
inline constexpr TileShape kSm90GroupedKF64[] = {{.n = 64, .stages = 7, .grouped = Axis::k}};
// mma.sync: 128x256 and 128x128 reuse shared memory the most, 64x64 fills the GPU.
inline constexpr TileShape kSm80[] = {
    {.n = 256, .stages = 3}, {.n = 128, .stages = 3}, {.warpgroups = 1, .n = 64, .stages = 4}};
// Grouped products. K-major operands of groups of k are loaded by elements, which bounds any tile.
inline constexpr TileShape kSm80Grouped[] = {
    {.n = 128, .stages = 3, .grouped = Axis::m},
    {.warpgroups = 1, .n = 64, .stages = 4, .grouped = Axis::m}};
inline constexpr TileShape kSm80GroupedFew[] = {
    {.warpgroups = 1, .n = 64, .stages = 4, .grouped = Axis::m}};
inline constexpr TileShape kSm80GroupedK[] = {
    {.n = 128, .stages = 3, .grouped = Axis::k},
    {.warpgroups = 1, .n = 64, .stages = 4, .grouped = Axis::k}};
inline constexpr TileShape kSm80GroupedKFew[] = {
    {.warpgroups = 1, .n = 64, .stages = 4, .grouped = Axis::k}};
// int4 has no 128x256: in code for 9.0a, where ptxas unpacks it, such a tile spills.
inline constexpr TileShape kSm80Few[] = {{.n = 128, .stages = 3},
                                         {.warpgroups = 1, .n = 64, .stages = 4}};
// FP64 of sm_80: three stages of 128x64 fit 99 KB.
inline constexpr TileShape kSm80F64[] = {{.n = 64, .stages = 3},
                                         {.warpgroups = 1, .n = 64, .stages = 4}};
// mma.sp needs twice the fragments of B: 256 columns would spill.
inline constexpr TileShape kSm80Sparse[] = {{.n = 128, .stages = 3},
                                            {.warpgroups = 1, .n = 64, .stages = 4}};

}  // namespace tcgemm::catalog
