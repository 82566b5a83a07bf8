// LaunchConfig -> Params -> kernel.
#include "launch/gemm.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "catalog.h"
#include "core/device.h"
#include "kernels/kernels.h"
#include "launch/launch.h"
#include "launch/launch_kernel.h"
#include "launch/params.h"
#include "launch/tensor_map.h"

namespace tcgemm::launch {
namespace {

// More than half of a multiprocessor's shared memory: one CTA on each.
constexpr int kAloneBytes = kHopperSharedBytes / 2 + 1024;

// Two CTAs of the kernel may share a multiprocessor, but one alone is as fast as two together.
constexpr bool shares_rate(const GemmConfig& config) {
  return config.uses_tma() && config.least_ctas() > 1;
}

// The kernel of a row and an epilogue. The first call for it and a device allows its shared memory;
// later calls only read, so a CUDA graph can be captured if the GEMM ran before.
const void* kernel_function(int row, EpiloguePath epilogue_path, int device) {
  constexpr std::size_t kKernels = kCatalog.size() * kEpiloguePaths;
  static std::array<std::atomic<const void*>, kKernels> functions;
  static std::array<std::atomic<std::uint64_t>, kKernels> allowed;
  const EpiloguePath path = kernel_path(epilogue_path);
  const int index = row * kEpiloguePaths + static_cast<int>(path);
  const std::uint64_t bit = std::uint64_t(1) << device;
  if (allowed[index].load(std::memory_order_acquire) & bit)
    return functions[index].load(std::memory_order_relaxed);
  const void* pointer = kernels::functions[row][static_cast<int>(path)];
  if (pointer == nullptr)
    throw std::runtime_error("tcgemm: kernel " + std::string(name(kCatalog[row]).text) +
                             " is not in this build; rebuild without TCGEMM_KERNELS and "
                             "TCGEMM_SAMPLE, and with its architecture in TORCH_CUDA_ARCH_LIST.");
  const GemmConfig& config = kCatalog[row];
  check(
      cudaFuncSetAttribute(pointer, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           std::max(config.shared_bytes(), shares_rate(config) ? kAloneBytes : 0)),
      "reserving shared memory for", {row});
  functions[index].store(pointer, std::memory_order_relaxed);
  allowed[index].fetch_or(bit, std::memory_order_release);
  return pointer;
}

// The element type of the tensor map. TMA rounds f32 elements to tf32.
DType tma_dtype(const GemmConfig& config, const Matrix& matrix) {
  return config.input == DType::tf32 ? DType::tf32 : matrix.dtype;
}

// The bytes of L2 promotion. With 256 the traffic between the L2 partitions is 1.5 times as large.
// On an H200 it slows large 2:4 GEMMs (bf16 4096^3 148 us, with 64 141; 8192^3 1111, 1085; e4m3
// 4096^3 82.6, 77.2) and speeds up dense ones (s8 4096^3 104 us, with 64 114; bf16 the same). A
// weight with one tile column is read once, from memory: 16 x 28672 x 4096 takes 43 us with it and
// 48 without. Rows that begin inside a line of L2 are slower with it (e4m3 2480x2080x6640 68.0 us,
// with 128 62.9; bf16 NT 1432x3560x3336 68.8, 65.3).
int l2_promotion(const LaunchConfig& run, const Matrix& matrix, std::int64_t pitch) {
  if (kCatalog[run.config_index].is_sparse() && run.tiles_n != 1) return 64;
  return begins_l2_lines(matrix.address, pitch * bytes(matrix.dtype)) ? 256 : 128;
}

// The map of an operand in the boxes of kernels/sm90/producer.cuh: one box of `rows` rows if it is
// K-major, boxes of `depth` k if it is MN-major.
TensorMap operand_map(const LaunchConfig& run, const Matrix& matrix, Major major,
                      std::int64_t extent_mn, std::int64_t k, std::int64_t batch, int rows,
                      int depth) {
  const GemmConfig& config = kCatalog[run.config_index];
  if (major == Major::K) {
    const Matrix stored = in_bytes(matrix);
    return tensor_map({stored.address, tma_dtype(config, stored), stored_extent(k, matrix.dtype),
                       extent_mn, batch, stored.stride_row, stored.stride_batch, config.box_k(),
                       rows, l2_promotion(run, stored, stored.stride_row)});
  }
  const DType type = tma_dtype(config, matrix);
  return tensor_map({matrix.address, type, extent_mn, k, batch, matrix.stride_col,
                     matrix.stride_batch, config.box_mn(), depth,
                     l2_promotion(run, matrix, matrix.stride_col)});
}

// The map of the values of a 2:4 operand. A box is half of the tile's k wide.
TensorMap values_map(const LaunchConfig& run, const Matrix& values, const Problem& problem) {
  const GemmConfig& config = kCatalog[run.config_index];
  return interleaved_map({values.address, tma_dtype(config, values), problem.stored_k_a(),
                          problem.m, 1, values.stride_row, 0, config.tile_k() / 2, config.tile_m(),
                          l2_promotion(run, values, values.stride_row)});
}

// The map of the result in boxes of `rows` x `columns` elements.
TensorMap result_map(const Matrix& out, std::int64_t m, std::int64_t n, std::int64_t batch,
                     int rows, int columns) {
  return tensor_map(
      {out.address, out.dtype, n, m, batch, out.stride_row, out.stride_batch, columns, rows});
}

// The maps of both operands, and the maps of the edge tiles, which K-major operands alone need.
void operand_maps(const LaunchContext& call, std::int64_t batch_a, std::int64_t batch_b,
                  TmaParams& params) {
  const auto& [problem, plan, run, a, b, split, filter, workspace, device, stream, sums, steps] =
      call;
  const GemmConfig& config = kCatalog[run.config_index];
  const auto map_a = [&](int rows) {
    return operand_map(run, a, major_a(config.layout), problem.m, problem.k, batch_a, rows,
                       config.tile_k() / run.cluster.n);
  };
  const auto map_b = [&](int rows) {
    return operand_map(run, b, major_b(config.layout), problem.n, problem.k, batch_b, rows,
                       config.tile_k() / run.cluster.m);
  };
  params.edge_rows_a = config.edge_rows_a(problem.m);
  params.edge_rows_b = config.edge_rows_b(problem.n);
  const bool edge_a = major_a(config.layout) == Major::K && !config.has_packed_weight() &&
                      params.edge_rows_a != config.tile_m();
  const bool edge_b = major_b(config.layout) == Major::K && params.edge_rows_b != config.loaded_n();
  // Each map is encoded only if a tile reads it.
  const bool only_edge_a = edge_a && problem.m < config.tile_m();
  const bool only_edge_b = edge_b && problem.n < config.tile_n();
  const auto [along_m, along_n] = run.cluster;
  params.b = map_b(only_edge_b ? params.edge_rows_b / along_m : config.box_rows_b(along_m));
  const int rows_a = (only_edge_a ? params.edge_rows_a : config.tile_m()) / along_n;
  // The producer copies a packed weight by its address.
  params.a = config.has_packed_weight() ? params.b
             : config.is_sparse()       ? values_map(run, a, problem)
                                        : map_a(rows_a);
  params.edge_a = edge_a && !only_edge_a ? map_a(params.edge_rows_a / along_n) : params.a;
  params.edge_b = edge_b && !only_edge_b ? map_b(params.edge_rows_b / along_m) : params.b;
}

SparseParams metadata(const GemmConfig& config, const Problem& problem) {
  const MetadataTiles tiles{problem.m, problem.k, bits(config.input)};
  return {reinterpret_cast<const std::uint32_t*>(problem[Slot::sparse_a].address),
          std::int32_t(tiles.blocks_m())};
}

PackedParams packed_weight(const Problem& problem) {
  const bool is_a = problem.has(Slot::packed_a);
  const PackedLayout layout{is_a ? problem.m : problem.n, problem.k, problem.packed};
  const std::uintptr_t address = problem[is_a ? Slot::packed_a : Slot::packed_b].address;
  return {reinterpret_cast<const float*>(address),
          reinterpret_cast<const char*>(address + PackedLayout::kHeaderBytes),
          reinterpret_cast<const float*>(address + layout.scales_offset()),
          std::int32_t(layout.blocks_n()),
          std::int32_t(layout.blocks_k()),
          std::int32_t(layout.groups()),
          layout.vectors(),
          layout.groups_in_block(),
          divisor(layout.blocks_in_group()),
          layout.weight.format,
          layout.weight.zeros};
}

// The shared memory of a launch. Kernels have the code pairs of a table last. The GPU may place two
// CTAs of a small grid on one multiprocessor while others are idle, so that they ask for more.
int shared_bytes(const GemmConfig& config, const LaunchContext& call) {
  const int needed = config.shared_bytes(call.problem.packed.format);
  const bool alone = shares_rate(config) && call.run.launched_cluster().size() == 1 &&
                     call.run.grid <= launch::device(call.device).multiprocessors;
  return alone ? std::max(needed, kAloneBytes) : needed;
}

// The operand that the kernel may load at once. A pass before it writes a copy.
// Which group a tile belongs to is not known before offs is.
ConstantOperand constant_operand(const LaunchContext& call) {
  const Passes& passes = call.plan.passes;
  return passes.repack_a || passes.repack_b || passes.split || call.problem.is_grouped()
             ? ConstantOperand::none
             : call.problem.constant;
}

GroupParams group_params(const Problem& problem, const LaunchConfig& run) {
  // A swap of A and B makes the stride of offs one along columns.
  const Operand& offs = problem[Slot::offs];
  return {reinterpret_cast<const std::int32_t*>(offs.address),
          std::int32_t(std::max(offs.stride_row, offs.stride_col)),
          std::int32_t(problem.batch),
          std::int32_t(run.tiles_m),
          std::int32_t(run.tiles_n),
          run.raster_group,
          !problem.has(Slot::c)};
}

// The map of the rows of all groups, of which TMA stores the first `count` of a box of 16 and no
// more: a box at (col, 16 - count, row + count) begins so late in the second dimension that the
// others are outside. The base lies 16 rows before the result; TMA touches no memory there.
TensorMap clipped_map(const Matrix& out, std::int64_t m, std::int64_t n) {
  const std::int64_t before = kBoxRows * out.stride_row * bytes(out.dtype);
  return tensor_map({out.address - before, out.dtype, n, kBoxRows, m + kBoxRows + 1, out.stride_row,
                     out.stride_row, int(1024 / bits(out.dtype)), kBoxRows});
}

bool launch_tma(const LaunchContext& call) {
  const auto& [problem, plan, run, a, b, split, filter, workspace, device, stream, sums, steps] =
      call;
  const GemmConfig& config = kCatalog[run.config_index];
  TmaParams params{};
  // The terms of an operand form one batch: all matrices of the first term, then of the next.
  const bool is_split = config.terms() > 1;
  const std::int64_t matrices = problem.batch / (sums ? 1 : run.stored_slices());
  const std::int64_t batch_a = is_split ? config.terms() * split.copies_a : matrices;
  const std::int64_t batch_b = is_split ? config.terms() * split.copies_b : matrices;
  operand_maps(call, batch_a, batch_b, params);
  params.epilogue = epilogue(problem, plan, run, workspace);
  params.partial_sums = sums;
  params.extent = extent(problem);
  params.tiling = tiling(problem, run);
  if (config.block_scaled()) {
    params.scale_a = scale_of_a(problem);
    params.scale_b = scale_of_b(problem);
  }
  params.split = split;
  if (config.is_sparse()) params.sparse = metadata(config, problem);
  if (config.has_packed_weight()) params.packed = packed_weight(problem);
  params.a_batched = is_split ? split.copies_a > 1 : matrices > 1 && a.stride_batch != 0;
  params.b_batched = is_split ? split.copies_b > 1 : matrices > 1 && b.stride_batch != 0;
  params.slices = slices(problem, run, config.tile_k());
  params.slices.steps = steps;
  params.constant = constant_operand(call);
  if (config.is_grouped()) params.groups = group_params(problem, run);
  if (run.store_path == StorePath::tma_rows) {
    params.tma_store = TmaStore::rows;
    const Matrix& out = problem[Slot::out];
    params.out = config.grouped == Axis::m ? clipped_map(out, problem.m, problem.n)
                                           : result_map(out, problem.m, problem.n, problem.batch,
                                                        kBoxRows, 1024 / bits(out.dtype));
  } else if (run.store_path == StorePath::tma_columns) {
    params.tma_store = TmaStore::columns;
    params.out = result_map(transposed(problem[Slot::out]), problem.n, problem.m, problem.batch,
                            config.store_box_columns(), config.store_box_rows());
  }
  return launch_kernel(kernel_function(run.config_index, run.epilogue_path, device), &params,
                       {run.grid, config.threads(), shared_bytes(config, call),
                        run.launched_cluster(), true, sums && steps == GridSteps::all},
                       stream, {run.config_index});
}

bool launch_cp_async(const LaunchContext& call) {
  const auto& [problem, plan, run, a, b, split, filter, workspace, device, stream, sums, steps] =
      call;
  const GemmConfig& config = kCatalog[run.config_index];
  CpAsyncParams params{};
  params.a = tensor_ref(in_bytes(a), problem.m, stored_extent(problem.stored_k_a(), a.dtype),
                        problem.batch);
  params.b = tensor_ref(in_bytes(transposed(b)), stored_extent(problem.k, b.dtype), problem.n,
                        problem.batch);
  params.epilogue = epilogue(problem, plan, run, workspace);
  params.extent = extent(problem);
  params.tiling = tiling(problem, run, filter.recompute_mask != nullptr);
  params.a_vector = run.vector_a;
  params.b_vector = run.vector_b;
  params.filter = filter;
  params.slices = slices(problem, run, config.tile_k());
  params.constant = constant_operand(call);
  if (config.is_grouped()) params.groups = group_params(problem, run);
  if (config.is_sparse()) params.sparse = metadata(config, problem);
  if (config.has_packed_weight()) params.packed = packed_weight(problem);
  if (config.block_scaled()) {
    params.scale_a = scale_of_a(problem);
    params.scale_b = scale_of_b(problem);
  }
  return launch_kernel(kernel_function(run.config_index, run.epilogue_path, device), &params,
                       {run.grid, config.threads(), shared_bytes(config, call),
                        run.launched_cluster(), config.arch == Arch::sm90a},
                       stream, {run.config_index});
}

}  // namespace

bool is_linked(std::size_t row) {
  for (int path = 0; path < kEpiloguePaths; ++path)
    if (kCatalog[row].has_kernel(EpiloguePath(path)) && kernels::functions[row][path] == nullptr)
      return false;
  return true;
}

int active_clusters(int size, int device) {
  int previous = 0, clusters = 0;
  if (cudaGetDevice(&previous) != cudaSuccess) return 0;
  for (int row = 0; row < int(kCatalog.size()); ++row) {
    const GemmConfig& kernel = kCatalog[row];
    if (!kernel.uses_tma()) continue;
    const void* pointer = kernels::functions[row][static_cast<int>(EpiloguePath::plain)];
    if (pointer == nullptr) continue;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {unsigned(size), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(size);
    config.blockDim = dim3(kernel.threads());
    config.dynamicSmemBytes = kernel.shared_bytes();
    config.attrs = &attribute;
    config.numAttrs = 1;
    // To set a device also creates its context, so the current one is not set again.
    if ((previous == device || cudaSetDevice(device) == cudaSuccess) &&
        cudaFuncSetAttribute(pointer, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kernel.shared_bytes()) == cudaSuccess)
      cudaOccupancyMaxActiveClusters(&clusters, pointer, &config);
    break;
  }
  cudaGetLastError();  // clears an error of these questions
  if (previous != device) cudaSetDevice(previous);
  return clusters;
}

bool launch_gemm(const LaunchContext& call) {
  return kCatalog[call.run.config_index].uses_tma() ? launch_tma(call) : launch_cp_async(call);
}

}  // namespace tcgemm::launch
