// Run -> Params -> kernel.
#include "launch/gemm.h"

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "catalog.h"
#include "kernels/kernels.h"
#include "launch/params.h"
#include "launch/launch_kernel.h"
#include "launch/tensor_map.h"

namespace tcgemm::launch {
namespace {

const void* function(int row) {
  const Kernel& kernel = kCatalog[row];
  const bool sm90 = kernel.arch == Arch::sm90a;
  const bool parts = kernel.parts > 1, sparse = kernel.sparse;
  switch (kernel.input) {
    case DType::bf16:
      if (parts) return kernels::sm90_bf16_parts(row);
      if (sparse) return sm90 ? kernels::sm90_bf16_sparse(row) : kernels::sm80_bf16_sparse(row);
      return sm90 ? kernels::sm90_bf16(row) : kernels::sm80_bf16(row);
    case DType::f16:
      if (parts) return kernels::sm90_f16_parts(row);
      if (sparse) return sm90 ? kernels::sm90_f16_sparse(row) : kernels::sm80_f16_sparse(row);
      return sm90 ? kernels::sm90_f16(row) : kernels::sm80_f16(row);
    case DType::tf32:
      if (sparse) return sm90 ? kernels::sm90_tf32_sparse(row) : kernels::sm80_tf32_sparse(row);
      return sm90 ? kernels::sm90_tf32(row) : kernels::sm80_tf32(row);
    case DType::f64:
      return kernels::sm90_f64(row);
    case DType::f32:
      return kernels::sm90_f32(row);
    case DType::e4m3:
    case DType::e5m2:
      if (!sm90) return kernels::sm80_fp8(row);
      if (sparse) return kernels::sm90_fp8_sparse(row);
      return kernel.promotes() ? kernels::sm90_fp8_scaled(row) : kernels::sm90_fp8(row);
    case DType::s8:
    case DType::u8:
      if (sparse) return sm90 ? kernels::sm90_int8_sparse(row) : kernels::sm80_int8_sparse(row);
      return sm90 ? kernels::sm90_int8(row) : kernels::sm80_int8(row);
    default:
      return nullptr;
  }
}

// The function of a row, with its shared memory allowed on `device`: once for each, and so before a
// CUDA graph is captured if the product ran before.
const void* ready(int row, int device) {
  static std::array<std::atomic<const void*>, kCatalog.size()> functions;
  static std::array<std::atomic<std::uint64_t>, kCatalog.size()> allowed;
  const std::uint64_t bit = std::uint64_t(1) << device;
  if (allowed[row].load(std::memory_order_acquire) & bit)
    return functions[row].load(std::memory_order_relaxed);
  const void* pointer = function(row);
  if (pointer == nullptr)
    throw std::runtime_error("tcgemm: kernel " + std::string(name(kCatalog[row]).text) +
                             " is not in this build; rebuild without "
                             "TCGEMM_KERNELS, and with its architecture in TORCH_CUDA_ARCH_LIST.");
  check(cudaFuncSetAttribute(pointer, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kCatalog[row].shared_bytes()),
        "reserving shared memory for", {row});
  functions[row].store(pointer, std::memory_order_relaxed);
  allowed[row].fetch_or(bit, std::memory_order_release);
  return pointer;
}

// What TMA takes the elements as: it rounds those that are f32 in memory.
DType loaded(const Kernel& kernel, const Matrix& matrix) {
  return kernel.input == DType::tf32 ? DType::tf32 : matrix.dtype;
}

// Fetching ahead makes 1.5 times the traffic between the halves of L2. On an H200 large sparse
// products take longer with it (bf16 4096^3 148 us, without it 141; 8192^3 1111, 1085; e4m3 4096^3
// 82.6, 77.2), and dense ones less long (s8 4096^3 104 us, without it 114; bf16 the same). A weight
// that is read once comes from memory (16 x 28672 x 4096: 43 us in a run with it, 48 in one
// without).
bool fetches_ahead(const Run& run) { return !kCatalog[run.kernel].sparse || run.tiles_n == 1; }

// The lines of an operand, seen from k, in boxes of kernels/sm90/producer.cuh: K-major in one box of
// `rows` lines, MN-major in boxes of `depth` lines of k.
TensorMap operand_map(const Kernel& kernel, const Matrix& matrix, Major major,
                      std::int64_t extent_mn, std::int64_t k, std::int64_t batch, int rows,
                      int depth, bool ahead) {
  const DType type = loaded(kernel, matrix);
  if (major == Major::K)
    return tensor_map({matrix.address, type, k, extent_mn, batch, matrix.stride_row,
                       matrix.stride_batch, kernel.tile_k(), rows, ahead});
  return tensor_map({matrix.address, type, extent_mn, k, batch, matrix.stride_col,
                     matrix.stride_batch, kernel.box_mn(), depth, ahead});
}

// The values of a sparse operand, as wide as half of the tile's k.
TensorMap values_map(const Kernel& kernel, const Matrix& values, const Problem& problem,
                     bool ahead) {
  return neighbours_map({values.address, loaded(kernel, values), problem.depth_a(), problem.m, 1,
                         values.stride_row, 0, kernel.tile_k() / 2, kernel.tile_m(), ahead});
}

// Boxes of `rows` parts of lines.
TensorMap result_map(const Matrix& out, std::int64_t m, std::int64_t n, std::int64_t batch,
                     int rows) {
  return tensor_map({out.address, out.dtype, n, m, batch, out.stride_row, out.stride_batch,
                     1024 / bits(out.dtype), rows});
}

SparseParams metadata(const Kernel& kernel, const Problem& problem) {
  const MetadataTiles tiles{problem.m, problem.k, bits(kernel.input)};
  return {reinterpret_cast<const std::uint32_t*>(problem.sparse_a->tiles),
          std::int32_t(tiles.blocks_m())};
}

void launch_tma(const Call& call) {
  const auto& [problem, plan, run, a, b, parts, repair, workspace, device, stream] = call;
  const Kernel& kernel = kCatalog[run.kernel];
  Sm90Params params{};
  // The parts of an operand are matrices of one batch, those of the next part after all of one.
  const bool in_parts = kernel.parts > 1;
  const std::int64_t batch_a = in_parts ? kernel.parts * parts.copies_a : problem.batch;
  const std::int64_t batch_b = in_parts ? kernel.parts * parts.copies_b : problem.batch;
  const bool ahead = fetches_ahead(run);
  params.a = kernel.sparse ? values_map(kernel, a, problem, ahead)
                           : operand_map(kernel, a, major_a(kernel.layout), problem.m, problem.k,
                                         batch_a, kernel.tile_m(), kernel.tile_k(), ahead);
  params.b = operand_map(kernel, b, major_b(kernel.layout), problem.n, problem.k, batch_b,
                         kernel.tile_n() / run.cluster, kernel.tile_k() / run.cluster, ahead);
  params.epilogue = epilogue(problem, plan, workspace);
  params.extent = extent(problem);
  params.tiling = tiling(problem, run);
  if (kernel.block_scaled) {
    params.scale_a = scale_of_a(problem);
    params.scale_b = scale_of_b(problem);
  }
  params.parts = parts;
  if (kernel.sparse) params.sparse = metadata(kernel, problem);
  params.a_batched = in_parts ? parts.copies_a > 1 : problem.batch > 1 && a.stride_batch != 0;
  params.b_batched = in_parts ? parts.copies_b > 1 : problem.batch > 1 && b.stride_batch != 0;
  params.store_tma = run.store_tma;
  if (run.store_tma == StoreTma::rows)
    params.out = result_map(problem.out, problem.m, problem.n, problem.batch, kBoxRows);
  if (run.store_tma == StoreTma::columns)
    params.out =
        result_map(transposed(problem.out), problem.n, problem.m, problem.batch, kSendColumns);
  submit(ready(run.kernel, device), &params,
         {run.grid, kernel.threads(), kernel.shared_bytes(), run.cluster, true}, stream,
         {run.kernel});
}

void launch_sources(const Call& call) {
  const auto& [problem, plan, run, a, b, parts, repair, workspace, device, stream] = call;
  const Kernel& kernel = kCatalog[run.kernel];
  Sm80Params params{};
  params.a = source(a, problem.m, problem.depth_a(), problem.batch);
  params.b = source(transposed(b), problem.k, problem.n, problem.batch);
  params.epilogue = epilogue(problem, plan, workspace);
  params.extent = extent(problem);
  params.tiling = tiling(problem, run);
  params.a_vector = run.vector_a;
  params.b_vector = run.vector_b;
  params.repair = repair;
  if (kernel.sparse) params.sparse = metadata(kernel, problem);
  if (kernel.block_scaled) {
    params.scale_a = scale_of_a(problem);
    params.scale_b = scale_of_b(problem);
  }
  submit(ready(run.kernel, device), &params,
         {run.grid, kernel.threads(), kernel.shared_bytes(), 1, kernel.arch == Arch::sm90a}, stream,
         {run.kernel});
}

}  // namespace

void product(const Call& call) {
  kCatalog[call.run.kernel].uses_tma() ? launch_tma(call) : launch_sources(call);
}

}  // namespace tcgemm::launch
