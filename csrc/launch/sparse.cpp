// Compression, Decompression, Gathering, Pruning, MetadataTiling -> one kernel each.
#include "launch/sparse.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "launch/launch_kernel.h"
#include "launch/params.h"

namespace tcgemm::launch {
namespace {

// Can rows that are `pitch` bytes apart be accessed `bytes` at a time?
bool is_aligned(const void* data, std::int64_t pitch, int bytes) {
  return (reinterpret_cast<std::uintptr_t>(data) | std::uintptr_t(pitch)) % bytes == 0;
}

CopyParams copy_params(const Matrix& w, std::int64_t rows, std::int64_t k, void* to,
                       std::int64_t pitch) {
  return {tensor_ref(w, rows, k, 1), to, w.dtype, rows, k, 1, pitch};
}

template <class Request>
TensorRef metadata_ref(const Request& request) {
  return tensor_ref(request.metadata, request.rows, metadata_columns(request.k, request.pattern),
                    1);
}

template <class Params>
void run(const void* pointer, const Params& params, int blocks, int device, void* stream,
         LaunchLabel label) {
  choose_device(device, label);
  launch_pass(pointer, &params, blocks, kernels::kSparseThreads, device, stream, label);
}

}  // namespace

void compress(const Compression& request, int device, void* stream) {
  const LaunchLabel label{-1, "compress"};
  const std::int64_t columns = value_columns(request.k, request.pattern);
  CompressParams params{};
  params.w = copy_params(request.w, request.rows, request.k, request.values, columns);
  params.metadata = request.metadata;
  params.metadata_pitch = metadata_columns(request.k, request.pattern);
  params.excess = request.excess;
  params.vector =
      is_aligned(request.values, columns * bytes(request.w.dtype), 8) &&
      (bytes(request.w.dtype) > 1 || is_aligned(request.metadata, params.metadata_pitch, 2));
  if (!request.prune) {
    choose_device(device, label);
    check(cudaMemsetAsync(request.excess, 0xff, 2 * sizeof(*request.excess),
                          static_cast<cudaStream_t>(stream)),
          "clearing the counts of", label);
  }
  // Without any elements there still is an excess.
  run(kernels::compress(params, request.pattern, request.prune), params,
      std::max(kernels::sparse_blocks(params.w), 1), device, stream, label);
}

void decompress(const Decompression& request, int device, void* stream) {
  if (request.rows == 0 || request.k == 0) return;
  const DType type = request.values.dtype;
  DecompressParams params{};
  params.values =
      tensor_ref(request.values, request.rows, value_columns(request.k, request.pattern), 1);
  params.metadata = metadata_ref(request);
  params.w = request.w;
  params.rows = request.rows;
  params.k = request.k;
  params.vector = request.values.stride_col == 1 &&
                  is_aligned(params.values.data, request.values.stride_row * bytes(type), 8) &&
                  is_aligned(request.w, request.k * bytes(type), 16);
  run(kernels::decompress(params, request.pattern), params, kernels::decompress_blocks(params),
      device, stream, {-1, "decompress"});
}

void gather(const Gathering& request, int device, void* stream) {
  if (request.rows == 0 || request.k == 0) return;
  const std::int64_t columns = value_columns(request.k, request.pattern);
  GatherParams params{};
  params.w = copy_params(request.w, request.rows, request.k, request.values, columns);
  params.metadata = metadata_ref(request);
  params.vector = is_aligned(request.values, columns * bytes(request.w.dtype), 8);
  run(kernels::gather(params, request.pattern), params, kernels::sparse_blocks(params.w), device,
      stream, {-1, "gather"});
}

void prune(const Pruning& request, int device, void* stream) {
  if (request.rows == 0 || request.k == 0) return;
  PruneParams params{};
  params.w = copy_params(request.w, request.rows, request.k, request.pruned, request.k);
  params.vector = is_aligned(request.pruned, request.k * bytes(request.w.dtype), 16);
  run(kernels::prune(params, request.pattern, request.transposable), params,
      kernels::sparse_blocks(params.w), device, stream, {-1, "prune"});
}

void tile(const MetadataTiling& request, int device, void* stream) {
  MetadataTileParams params{};
  params.metadata = metadata_ref(request);
  params.tiles = request.tiles;
  params.shape = {request.rows, request.k, request.bits};
  run(kernels::tile_metadata(params), params, kernels::tile_metadata_blocks(params), device, stream,
      {-1, "tile"});
}

}  // namespace tcgemm::launch
