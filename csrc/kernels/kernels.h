// The interface of the compiled kernels to launch/.
#pragma once

#include <array>

#include "catalog.h"
#include "core/params.h"
#include "core/quantize.h"
#include "core/sparse_params.h"

namespace tcgemm::kernels {

// The __global__ functions of the rows, for cudaLaunchKernelExC. One is nullptr if the row is not
// built or has no kernel with this path. Each unit fills in its own when the library is loaded.
inline constinit std::array<std::array<const void*, kEpiloguePaths>, kCatalog.size()> functions{};

// The passes before and around GEMMs. Params are kernel arguments, grids are one-dimensional, and
// no pass uses dynamic shared memory. Each pass has a grid-stride loop, so any number of CTAs is
// correct unless said otherwise. It waits for its prerequisites and launches its dependents by
// itself (ptx/dependent.cuh). Functions that end in _blocks return the CTAs to launch.

// Repack: rows x k with any strides -> K-major with a pitch (RepackParams), converted on the way.
// Both copies of a launch have elements of the same size, and both are converted or neither.
// Sub-byte elements are copied as bytes, or converted to s8.
const void* repack(const RepackParams& params);

inline constexpr int kRepackThreads = 256;

int repack_blocks(const RepackParams& params);

// Split-FP32: f32 operands -> 16-bit terms (SplitFp32PassParams), in two passes. The first computes
// the ranges of all rows and writes statistics. It also writes f16 terms, unless bf16 is requested
// or its own statistics rule f16 out. The second writes the decision. If the decision is
// kNeedsChecks, it clears the recompute mask; if it is kUseBf16, it overwrites the f16 terms with
// bf16 terms.
const void* split_first();
const void* split_second();

inline constexpr int kSplitThreads = 256;

// Fills in the partition of each operand, may swap the operands, and chooses the cluster of the
// first pass. It must be called before split_first_blocks.
void partition_split(SplitFp32PassParams& params);

// The statistics words that the first pass writes for an operand, at most kMaxSplitStatistics. Each
// needs a CTA, or a cluster.
int split_statistics_count(const SplitFp32Operand& operand);
int split_first_blocks(const SplitFp32PassParams& params);  // exactly this many CTAs
int split_second_blocks(const SplitFp32PassParams& params);

// Sums along k of integers of at most 8 bits (SumParams).
const void* sums(const SumParams& params);

inline constexpr int kSumThreads = 256;

int sum_blocks(const SumParams& params);

// The partial sums of a product whose k is divided into slices -> its result (AddSlicesParams).
// The result of f64 sums is f64, or they are rounded to f32 before the epilogue.
// partition_add_slices fills in the partition.
const void* add_slices(DType sums, bool f64_result);

inline constexpr int kAddSlicesThreads = 256;
inline constexpr int kSumColumns = 32;  // of the result that a warp adds at a time

void partition_add_slices(AddSlicesParams& params);
int add_slices_blocks(const AddSlicesParams& params);

// Quantization: values and scales (QuantizeParams). Only granularity "tensor" without a given scale
// needs the pass quantize_amax before it; the others find their maxima themselves.
const void* quantize_amax(const QuantizeParams& params);
const void* quantize(const QuantizeParams& params, Granularity granularity);

inline constexpr int kQuantizeThreads = 256;

int quantize_amax_blocks(const QuantizeParams& params);
int quantize_blocks(const QuantizeParams& params, Granularity granularity);

// The backward of an activation and of a bias (ActivationBackwardParams). With more than one split,
// add_partial_sums must follow. partition_activation_backward fills in the partition.
const void* activation_backward(const ActivationBackwardParams& params, Activation activation);
const void* add_partial_sums();

inline constexpr int kActivationBackwardThreads = 256;

void partition_activation_backward(ActivationBackwardParams& params, int multiprocessors);
int activation_backward_blocks(const ActivationBackwardParams& params);
int add_partial_sums_blocks(const ActivationBackwardParams& params);

// 2:4 sparsity (core/sparse.h). Without `prune`, the caller initialises the excess of compress to
// -1, -1.
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
