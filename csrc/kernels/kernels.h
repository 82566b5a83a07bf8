// The doors to the compiled kernels: what launch/ may know of them.
#pragma once

#include "catalog.h"
#include "core/params.h"
#include "core/quantize.h"
#include "core/sparse_params.h"

namespace tcgemm::kernels {

// The __global__ function of a row that Unit kUnit compiles, for cudaLaunchKernelExC; nullptr where
// the row is not built. Each file of instances/ specialises it for its unit.
template <Unit kUnit>
const void* find(int config_index);

// The passes around products. Params go by value, grids are one-dimensional, nothing dynamic is
// shared. Each walks its work with the stride of the grid, so any number of blocks is right, waits
// for its prerequisites itself and lets its dependents start early (ptx/dependent.cuh).

// rows x k with any strides -> K-major with a pitch (RepackParams), converted on the way. Both
// copies of a launch have elements of the same size, and are converted or not together.
const void* repack(const RepackParams& params);

inline constexpr int kRepackThreads = 256;

int repack_blocks(const RepackParams& params);

// f32 operands -> 16-bit parts (SplitFp32PassParams), in two passes. The first finds the ranges of all rows
// and leaves notes, and f16 parts unless bf16 is decided or its own notes say so. The second comes
// to the verdict, which it writes; where that is careful it clears the flags, and where it is bf16
// it makes bf16 parts in the place of those of f16.
const void* split_first();
const void* split_second();

inline constexpr int kSplitThreads = 256;

// Fills in how operands are cut, which may change their order, and the cluster to launch the first
// pass with. Blocks are counted after that.
void partition_split(SplitFp32PassParams& params);

// Notes that the first pass leaves of an operand, at most kMaxSplitStatistics: it wants a block, or a
// cluster of them, for each.
int split_statistics_count(const SplitFp32Operand& operand);
int split_first_blocks(const SplitFp32PassParams& params);  // this pass alone wants exactly so many
int split_second_blocks(const SplitFp32PassParams& params);

// Sums along k of s8 or u8 (SumParams).
const void* sums();

inline constexpr int kSumThreads = 256;

int sum_blocks(const SumParams& params);

// Values and scales (QuantizeParams). "tensor" alone needs the pass before, which finds its largest
// value; the others find it as they go. Only that pass, and "tensor" after it, touch params.amax.
const void* quantize_amax(const QuantizeParams& params);
const void* quantize(const QuantizeParams& params, Granularity granularity);

inline constexpr int kQuantizeThreads = 256;

int quantize_amax_blocks(const QuantizeParams& params);
int quantize_blocks(const QuantizeParams& params, Granularity granularity);

// 2:4 sparsity (core/sparse.h). Compressing without `prune` wants an excess of -1, -1.
const void* compress(const CompressParams& params, Pattern pattern, bool prune);
const void* prune(const PruneParams& params, Pattern pattern, bool transposable);
const void* decompress(const DecompressParams& params, Pattern pattern);
const void* gather(const GatherParams& params, Pattern pattern);
const void* tile_metadata(const MetadataTileParams& params);

inline constexpr int kSparseThreads = 256;

int sparse_blocks(const CopyParams& w);  // of compress, prune and gather
int decompress_blocks(const DecompressParams& params);
int tile_metadata_blocks(const MetadataTileParams& params);

}  // namespace tcgemm::kernels
