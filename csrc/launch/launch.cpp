// Plan -> Params -> kernel: tensor maps, epilogue, grid, and what a launch needs of the driver.
#include "launch/launch.h"

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <string>

#include "catalog.h"
#include "kernels/kernels.h"
#include "launch/tensor_map.h"

namespace tcgemm::launch {
namespace {

// `row` is the kernel's, or -1 for the prepare pass: names are made only when something failed.
void check(cudaError_t error, const char* what, int row) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report this one again
  const std::string label = row < 0 ? "the prepare pass" : name(kCatalog[row]).text;
  throw std::runtime_error("tcgemm: " + std::string(what) + " " + label +
                           " failed: " + cudaGetErrorString(error) + ".");
}

const void* function(int row) {
  const Kernel& kernel = kCatalog[row];
  const bool bf16 = kernel.input == DType::bf16;
  if (kernel.arch == Arch::sm90a) return bf16 ? kernels::sm90_bf16(row) : kernels::sm90_f16(row);
  return bf16 ? kernels::sm80_bf16(row) : kernels::sm80_f16(row);
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
        "reserving shared memory for", row);
  functions[row].store(pointer, std::memory_order_relaxed);
  allowed[row].fetch_or(bit, std::memory_order_release);
  return pointer;
}

struct Shape {
  int grid, threads, shared;
  int cluster = 1;
  bool overlap = false;  // the kernel waits for its prerequisites itself: see ptx/dependent.cuh
};

void submit(const void* pointer, const void* params, const Shape& shape, void* stream, int row) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {unsigned(shape.cluster), 1, 1};
  }
  if (shape.overlap) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  void* arguments[] = {const_cast<void*>(params)};
  check(cudaLaunchKernelExC(&config, pointer, arguments), "launching", row);
}

Source source(const Matrix& matrix, std::int64_t rows, std::int64_t cols, std::int64_t batch) {
  return {reinterpret_cast<const void*>(matrix.address),
          matrix.stride_row,
          matrix.stride_col,
          matrix.stride_batch,
          matrix.dtype,
          wide(matrix, rows, cols, batch)};
}

Epilogue epilogue(const Problem& problem) {
  const auto option = [&](const std::optional<Matrix>& matrix) {
    return matrix ? source(*matrix, problem.m, problem.n, problem.batch) : Source{};
  };
  const Matrix& out = problem.out;
  Epilogue result;
  result.alpha = float(problem.alpha);
  result.beta = float(problem.beta);
  result.activation = problem.activation;
  result.out_dtype = out.dtype;
  result.sources[kC] = option(problem.c);
  result.sources[kBias] = option(problem.bias);
  result.sources[kResidual] = option(problem.residual);
  const Source& bias = result.sources[kBias];
  const bool row = !problem.bias || (bias.vector && bias.stride_row == 0 && bias.stride_col == 1);
  const bool relu = problem.activation == Activation::relu;
  result.options = problem.options();
  result.fast = problem.alpha == 1.0 && !problem.c && !problem.residual && row &&
                (relu || problem.activation == Activation::none);
  result.out = reinterpret_cast<void*>(out.address);
  result.out_stride_row = out.stride_row;
  result.out_stride_col = out.stride_col;
  result.out_stride_batch = out.stride_batch;
  result.out_vector = wide(out, problem.m, problem.n, problem.batch);
  return result;
}

Extent extent(const Problem& problem) {
  return {std::int32_t(problem.m), std::int32_t(problem.n), std::int32_t(problem.k),
          std::int32_t(problem.batch)};
}

Tiling tiling(const Problem& problem, const Plan& plan) {
  return {std::int32_t(plan.tiles_m), std::int32_t(plan.tiles_n), plan.group,
          plan.tiles_m * plan.tiles_n * problem.batch};
}

// The lines of an operand, seen from k, in boxes of the mainloop (kernels/sm90/mainloop.cuh):
// K-major in one box of `rows` lines, MN-major in 64-wide boxes of `depth` lines of k.
TensorMap operand_map(const Matrix& matrix, Major major, std::int64_t extent_mn, std::int64_t k,
                      std::int64_t batch, int rows, int depth) {
  if (major == Major::K)
    return tensor_map({matrix.address, matrix.dtype, k, extent_mn, batch, matrix.stride_row,
                       matrix.stride_batch, kBlock, rows});
  return tensor_map({matrix.address, matrix.dtype, extent_mn, k, batch, matrix.stride_col,
                     matrix.stride_batch, kBlock, depth});
}

void launch_sm90(const Problem& problem, const Plan& plan, const Matrix& a, const Matrix& b,
                 int device, void* stream) {
  const Kernel& kernel = kCatalog[plan.kernel];
  Sm90Params params{};
  params.a = operand_map(a, major_a(kernel.layout), problem.m, problem.k, problem.batch,
                         kernel.tile_m(), kBlock);
  params.b = operand_map(b, major_b(kernel.layout), problem.n, problem.k, problem.batch,
                         kernel.tile_n() / plan.cluster, kBlock / plan.cluster);
  params.epilogue = epilogue(problem);
  params.extent = extent(problem);
  params.tiling = tiling(problem, plan);
  params.a_batched = problem.batch > 1 && a.stride_batch != 0;
  params.b_batched = problem.batch > 1 && b.stride_batch != 0;
  params.store_tma = plan.store_tma;
  if (plan.store_tma)
    params.out =
        tensor_map({problem.out.address, problem.out.dtype, problem.n, problem.m, problem.batch,
                    problem.out.stride_row, problem.out.stride_batch, kBoxColumns, kBoxRows});
  submit(ready(plan.kernel, device), &params,
         {plan.grid, kernel.threads(), kernel.shared_bytes(), plan.cluster, true}, stream,
         plan.kernel);
}

void launch_sm80(const Problem& problem, const Plan& plan, const Matrix& a, const Matrix& b,
                 int device, void* stream) {
  const Kernel& kernel = kCatalog[plan.kernel];
  Sm80Params params{};
  params.a = source(a, problem.m, problem.k, problem.batch);
  params.b = source(transposed(b), problem.k, problem.n, problem.batch);
  params.epilogue = epilogue(problem);
  params.extent = extent(problem);
  params.tiling = tiling(problem, plan);
  params.a_vector = plan.vector_a;
  params.b_vector = plan.vector_b;
  submit(ready(plan.kernel, device), &params, {plan.grid, kernel.threads(), kernel.shared_bytes()},
         stream, plan.kernel);
}

Matrix copy(const Prepare& pass, void* workspace, void* stream) {
  const Matrix result = prepared(pass, reinterpret_cast<std::uintptr_t>(workspace));
  PrepareParams params{};
  params.source = source(pass.source, pass.rows, pass.k, pass.batch);
  params.copy = reinterpret_cast<void*>(result.address);
  params.rows = pass.rows;
  params.k = pass.k;
  params.batch = pass.batch;
  params.pitch = pass.pitch;
  submit(kernels::prepare(), &params,
         {kernels::prepare_blocks(params), kernels::kPrepareThreads, 0}, stream, -1);
  return result;
}

}  // namespace

void launch(const Problem& asked, const Plan& plan, void* workspace, int device, void* stream) {
  if (plan.kernel < 0) return;
  // A thread that never called CUDA has no context, and encoding a tensor map asks for one.
  check(cudaSetDevice(device), "choosing the device for", plan.kernel);
  const Problem problem = plan.transposed ? transposed(asked) : asked;
  const Matrix a = plan.prepare_a ? copy(*plan.prepare_a, workspace, stream) : problem.a;
  const Matrix b =
      plan.prepare_b ? copy(*plan.prepare_b, workspace, stream) : transposed(problem.b);
  const auto run = kCatalog[plan.kernel].arch == Arch::sm90a ? launch_sm90 : launch_sm80;
  run(problem, plan, a, b, device, stream);
}

}  // namespace tcgemm::launch
