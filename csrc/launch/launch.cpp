// Plan -> Params -> kernels: the passes before the product, tensor maps, grid.
#include "launch/launch.h"

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <string>

#include "catalog.h"
#include "kernels/kernels.h"
#include "launch/params.h"
#include "launch/submit.h"
#include "launch/tensor_map.h"

namespace tcgemm::launch {
namespace {

const void* function(int row) {
  const Kernel& kernel = kCatalog[row];
  const bool sm90 = kernel.arch == Arch::sm90a;
  switch (kernel.input) {
    case DType::bf16:
      return sm90 ? kernels::sm90_bf16(row) : kernels::sm80_bf16(row);
    case DType::f16:
      return sm90 ? kernels::sm90_f16(row) : kernels::sm80_f16(row);
    case DType::tf32:
      return sm90 ? kernels::sm90_tf32(row) : kernels::sm80_tf32(row);
    case DType::f64:
      return kernels::sm90_f64(row);
    case DType::e4m3:
    case DType::e5m2:
      if (!sm90) return kernels::sm80_fp8(row);
      return kernel.promotes() ? kernels::sm90_fp8_scaled(row) : kernels::sm90_fp8(row);
    case DType::s8:
    case DType::u8:
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

// The lines of an operand, seen from k, in boxes of kernels/sm90/ring.cuh, 128 bytes wide: K-major
// in one box of `rows` lines, MN-major in boxes of `depth` lines of k.
TensorMap operand_map(const Kernel& kernel, const Matrix& matrix, Major major,
                      std::int64_t extent_mn, std::int64_t k, std::int64_t batch, int rows,
                      int depth) {
  const DType type = kernel.input == DType::tf32 ? DType::tf32 : matrix.dtype;
  const int inner = kernel.tile_k();
  if (major == Major::K)
    return tensor_map({matrix.address, type, k, extent_mn, batch, matrix.stride_row,
                       matrix.stride_batch, inner, rows});
  return tensor_map({matrix.address, type, extent_mn, k, batch, matrix.stride_col,
                     matrix.stride_batch, inner, depth});
}

// What every launch of a product has in hand.
struct Call {
  const Problem& problem;  // as the kernel sees it
  const Plan& plan;
  const Kernel& kernel;
  Matrix a, b;  // m x k and n x k, as they are after the passes
  void* workspace;
  int device;
  void* stream;
};

void launch_tma(const Call& call) {
  const auto& [problem, plan, kernel, a, b, workspace, device, stream] = call;
  Sm90Params params{};
  params.a = operand_map(kernel, a, major_a(kernel.layout), problem.m, problem.k, problem.batch,
                         kernel.tile_m(), kernel.tile_k());
  params.b = operand_map(kernel, b, major_b(kernel.layout), problem.n, problem.k, problem.batch,
                         kernel.tile_n() / plan.cluster, kernel.tile_k() / plan.cluster);
  params.epilogue = epilogue(problem, plan, workspace);
  params.extent = extent(problem);
  params.tiling = tiling(problem, plan);
  if (kernel.block_scaled) {
    params.scale_a = scale_of_a(problem);
    params.scale_b = scale_of_b(problem);
  }
  params.a_batched = problem.batch > 1 && a.stride_batch != 0;
  params.b_batched = problem.batch > 1 && b.stride_batch != 0;
  params.store_tma = plan.store_tma;
  if (plan.store_tma)
    params.out = tensor_map({problem.out.address, problem.out.dtype, problem.n, problem.m,
                             problem.batch, problem.out.stride_row, problem.out.stride_batch,
                             1024 / bits(problem.out.dtype), kBoxRows});
  submit(ready(plan.kernel, device), &params,
         {plan.grid, kernel.threads(), kernel.shared_bytes(), plan.cluster, true}, stream,
         {plan.kernel});
}

void launch_sources(const Call& call) {
  const auto& [problem, plan, kernel, a, b, workspace, device, stream] = call;
  Sm80Params params{};
  params.a = source(a, problem.m, problem.k, problem.batch);
  params.b = source(transposed(b), problem.k, problem.n, problem.batch);
  params.epilogue = epilogue(problem, plan, workspace);
  params.extent = extent(problem);
  params.tiling = tiling(problem, plan);
  params.a_vector = plan.vector_a;
  params.b_vector = plan.vector_b;
  if (kernel.block_scaled) {
    params.scale_a = scale_of_a(problem);
    params.scale_b = scale_of_b(problem);
  }
  submit(ready(plan.kernel, device), &params,
         {plan.grid, kernel.threads(), kernel.shared_bytes(), 1, kernel.arch == Arch::sm90a},
         stream, {plan.kernel});
}

// Both copies in one launch; what has none stays as it is.
void prepare(Call& call) {
  PrepareParams params{};
  const auto add = [&](const std::optional<Prepare>& pass, Matrix& operand) {
    if (!pass) return;
    operand = prepared(*pass, reinterpret_cast<std::uintptr_t>(call.workspace));
    CopyParams& copy = params.copies[params.count++];
    copy.source = source(pass->source, pass->rows, pass->k, pass->batch);
    copy.copy = reinterpret_cast<void*>(operand.address);
    copy.to = pass->to;
    copy.rows = pass->rows;
    copy.k = pass->k;
    copy.batch = pass->batch;
    copy.pitch = pass->pitch;
  };
  add(call.plan.prepare_a, call.a);
  add(call.plan.prepare_b, call.b);
  if (params.count == 0) return;
  submit(kernels::prepare(params), &params,
         {kernels::prepare_blocks(params), kernels::kPrepareThreads, 0, 1, overlaps(call.device)},
         call.stream, {-1, "the prepare pass"});
}

void sum(const std::optional<Sums>& pass, const Call& call) {
  if (!pass) return;
  SumParams params{};
  params.source = source(pass->source, pass->rows, pass->k, pass->batch);
  params.sums = reinterpret_cast<std::int32_t*>(static_cast<char*>(call.workspace) + pass->offset);
  params.rows = pass->rows;
  params.k = pass->k;
  params.batch = pass->batch;
  submit(kernels::sums(), &params,
         {kernels::sum_blocks(params), kernels::kSumThreads, 0, 1, overlaps(call.device)},
         call.stream, {-1, "the sums for zero points"});
}

}  // namespace

void launch(const Problem& asked, const Plan& plan, void* workspace, int device, void* stream) {
  const Step step{plan.kernel, "an empty product"};
  const bool clear = asked.amax && !asked.amax_continues;
  if (plan.kernel < 0 && !clear) return;
  // A thread that never called CUDA has no context, and encoding a tensor map asks for one.
  check(cudaSetDevice(device), "choosing the device for", step);
  if (clear)
    check(cudaMemsetAsync(reinterpret_cast<void*>(asked.amax->address), 0, sizeof(float),
                          static_cast<cudaStream_t>(stream)),
          "clearing amax before", step);
  if (plan.kernel < 0) return;
  const Problem problem = plan.transposed ? transposed(asked) : asked;
  Call call{problem, plan,  kCatalog[plan.kernel], problem.a, transposed(problem.b), workspace,
            device,  stream};
  prepare(call);
  sum(plan.sums_a, call);
  sum(plan.sums_b, call);
  call.kernel.uses_tma() ? launch_tma(call) : launch_sources(call);
}

}  // namespace tcgemm::launch
