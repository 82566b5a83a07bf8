// Compression, Decompression, Gathering, Pruning, MetadataTiling -> one kernel each.
#include "launch/sparse.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "launch/launch_kernel.h"
#include "launch/params.h"

namespace tcgemm::launch {
namespace {

// Can lines `pitch` bytes apart be accessed `bytes` at a time?
bool in_words(const void* data, std::int64_t pitch, int bytes) {
  return (reinterpret_cast<std::uintptr_t>(data) | std::uintptr_t(pitch)) % bytes == 0;
}

CopyParams copy(const Matrix& w, std::int64_t rows, std::int64_t k, void* to, std::int64_t pitch) {
  return {tensor_ref(w, rows, k, 1), to, w.dtype, rows, k, 1, pitch};
}

template <class Asked>
TensorRef metadata(const Asked& asked) {
  return tensor_ref(asked.metadata, asked.rows, metadata_columns(asked.k, asked.pattern), 1);
}

template <class Params>
void run(const void* pointer, const Params& params, int blocks, int device, void* stream,
         LaunchLabel label) {
  check(cudaSetDevice(device), "choosing the device for", label);
  launch_kernel(pointer, &params,
                {blocks, kernels::kSparseThreads, 0, 1, supports_dependent_launch(device)}, stream,
                label);
}

}  // namespace

void compress(const Compression& asked, int device, void* stream) {
  const LaunchLabel label{-1, "compress"};
  const std::int64_t columns = value_columns(asked.k, asked.pattern);
  CompressParams params{};
  params.w = copy(asked.w, asked.rows, asked.k, asked.values, columns);
  params.metadata = asked.metadata;
  params.metadata_pitch = metadata_columns(asked.k, asked.pattern);
  params.excess = asked.excess;
  params.vector = in_words(asked.values, columns * bytes(asked.w.dtype), 8) &&
                  (bytes(asked.w.dtype) > 1 || in_words(asked.metadata, params.metadata_pitch, 2));
  if (!asked.prune) {
    check(cudaSetDevice(device), "choosing the device for", label);
    check(cudaMemsetAsync(asked.excess, 0xff, 2 * sizeof(*asked.excess),
                          static_cast<cudaStream_t>(stream)),
          "clearing the counts of", label);
  }
  // Without any elements there still is an excess.
  run(kernels::compress(params, asked.pattern, asked.prune), params,
      std::max(kernels::sparse_blocks(params.w), 1), device, stream, label);
}

void decompress(const Decompression& asked, int device, void* stream) {
  if (asked.rows == 0 || asked.k == 0) return;
  const DType type = asked.values.dtype;
  DecompressParams params{};
  params.values = tensor_ref(asked.values, asked.rows, value_columns(asked.k, asked.pattern), 1);
  params.metadata = metadata(asked);
  params.w = asked.w;
  params.rows = asked.rows;
  params.k = asked.k;
  params.vector = asked.values.stride_col == 1 &&
                  in_words(params.values.data, asked.values.stride_row * bytes(type), 8) &&
                  in_words(asked.w, asked.k * bytes(type), 16);
  run(kernels::decompress(params, asked.pattern), params, kernels::decompress_blocks(params),
      device, stream, {-1, "decompress"});
}

void gather(const Gathering& asked, int device, void* stream) {
  if (asked.rows == 0 || asked.k == 0) return;
  const std::int64_t columns = value_columns(asked.k, asked.pattern);
  GatherParams params{};
  params.w = copy(asked.w, asked.rows, asked.k, asked.values, columns);
  params.metadata = metadata(asked);
  params.vector = in_words(asked.values, columns * bytes(asked.w.dtype), 8);
  run(kernels::gather(params, asked.pattern), params, kernels::sparse_blocks(params.w), device,
      stream, {-1, "gather"});
}

void prune(const Pruning& asked, int device, void* stream) {
  if (asked.rows == 0 || asked.k == 0) return;
  PruneParams params{};
  params.w = copy(asked.w, asked.rows, asked.k, asked.pruned, asked.k);
  params.vector = in_words(asked.pruned, asked.k * bytes(asked.w.dtype), 16);
  run(kernels::prune(params, asked.pattern, asked.transposable), params,
      kernels::sparse_blocks(params.w), device, stream, {-1, "prune"});
}

void tile(const MetadataTiling& asked, int device, void* stream) {
  MetadataTileParams params{};
  params.metadata = metadata(asked);
  params.tiles = asked.tiles;
  params.shape = {asked.rows, asked.k, asked.bits};
  run(kernels::tile_metadata(params), params, kernels::tile_metadata_blocks(params), device, stream,
      {-1, "tile"});
}

}  // namespace tcgemm::launch
