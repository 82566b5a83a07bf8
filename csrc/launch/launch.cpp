// Plan -> the passes before the GEMM, and its kernels.
#include "launch/launch.h"

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/kernels.h"
#include "launch/gemm.h"
#include "launch/launch_kernel.h"
#include "launch/params.h"
#include "launch/split_fp32.h"

namespace tcgemm::launch {
namespace {

// An operand, rows x k, whose bytes a pass reads if its type is sub-byte.
TensorRef stored_ref(const Matrix& matrix, std::int64_t rows, std::int64_t k, std::int64_t batch) {
  TensorRef source = tensor_ref(in_bytes(matrix), rows, stored_extent(k, matrix.dtype), batch);
  source.dtype = matrix.dtype;
  return source;
}

// Launches the repack passes of both operands as one kernel. Operands without a pass are unchanged.
void repack(LaunchContext& context) {
  RepackParams params{};
  const auto add = [&](const std::optional<RepackPass>& pass, Matrix& operand) {
    if (!pass) return;
    operand = repacked(*pass, reinterpret_cast<std::uintptr_t>(context.workspace));
    CopyParams& copy = params.copies[params.count++];
    copy.source = stored_ref(pass->source, pass->rows, pass->k, pass->batch);
    copy.copy = reinterpret_cast<void*>(operand.address);
    copy.to = pass->to;
    copy.rows = pass->rows;
    copy.k = stored_extent(pass->k, pass->source.dtype);
    copy.batch = pass->batch;
    copy.pitch = stored_extent(pass->pitch, pass->source.dtype);
  };
  add(context.plan.passes.repack_a, context.a);
  add(context.plan.passes.repack_b, context.b);
  if (params.count == 0) return;
  launch_pass(kernels::repack(params), &params, kernels::repack_blocks(params),
              kernels::kRepackThreads, context.device, context.stream, {-1, "the repack pass"});
}

void sum(const std::optional<SumPass>& pass, const LaunchContext& context) {
  if (!pass) return;
  SumParams params{};
  params.source = stored_ref(pass->source, pass->rows, pass->k, pass->batch);
  params.sums =
      reinterpret_cast<std::int32_t*>(static_cast<char*>(context.workspace) + pass->offset);
  params.rows = pass->rows;
  params.k = stored_extent(pass->k, pass->source.dtype);
  params.batch = pass->batch;
  params.factor = pass->factor;
  params.addend = pass->addend;
  launch_pass(kernels::sums(params), &params, kernels::sum_blocks(params), kernels::kSumThreads,
              context.device, context.stream, {-1, "the sums along k"});
}

// Adds the partial sums, which lie in the workspace, to the result of `problem`.
void add_slices(const Problem& problem, const LaunchContext& context, const Matrix& sums) {
  LaunchConfig rolled = context.run;
  rolled.epilogue_path = EpiloguePath::rolled;
  AddSlicesParams params{};
  params.sums = reinterpret_cast<const void*>(sums.address);
  params.pitch = sums.stride_row;
  params.slices = context.run.slices;
  params.epilogue = epilogue(problem, context.plan, rolled, context.workspace);
  params.extent = extent(problem);
  kernels::partition_add_slices(params);
  launch_pass(kernels::add_slices(sums.dtype, problem.accumulator == DType::f64), &params,
              kernels::add_slices_blocks(params), kernels::kAddSlicesThreads, context.device,
              context.stream, {-1, "the sum of the slices of k"});
}

// The kernel of the partial sums, and the one that adds them.
void launch_slices(const LaunchContext& context) {
  const Problem& problem = context.problem;
  const GemmConfig& config = kCatalog[context.run.config_index];
  const Matrix sums = partial_sums_matrix(
      config, problem,
      reinterpret_cast<std::uintptr_t>(context.workspace) + context.plan.partial_sums);
  const Problem partial = partial_sums(problem, context.run.slices, sums);
  launch_gemm({partial,
               context.plan,
               context.run,
               context.a,
               context.b,
               {},
               {},
               context.workspace,
               context.device,
               context.stream});
  const auto add = [&](const Problem& result) {
    if (has_sums_by_columns(config, problem))
      add_slices(transposed(result), context, transposed(sums));
    else
      add_slices(result, context, sums);
  };
  add(problem.has(Slot::z) ? without_z(problem) : problem);
  if (problem.has(Slot::z)) add(only_z(problem));
}

// The kernel that adds its partial sums. It runs once. Where the context has no place for all CTAs,
// it runs once for the sums and once for the result. With EpiloguePath::slices it has one result,
// so it runs once more for a second one.
void launch_grid_sums(const LaunchContext& context) {
  const Problem& problem = context.problem;
  LaunchConfig config = context.run;
  const auto run = [&](const Problem& result, GridSteps steps) {
    return launch_gemm({result,
                        context.plan,
                        config,
                        context.a,
                        context.b,
                        {},
                        {},
                        context.workspace,
                        context.device,
                        context.stream,
                        static_cast<char*>(context.workspace) + context.plan.partial_sums,
                        steps});
  };
  const bool divides_z = config.epilogue_path == EpiloguePath::slices && problem.has(Slot::z);
  if (!divides_z && run(problem, GridSteps::all)) return;
  if (divides_z) config.store_path = StorePath::elements;
  const Problem result = divides_z ? without_z(problem) : problem;
  run(result, GridSteps::store);
  run(result, GridSteps::add);
  if (divides_z) run(only_z(problem), GridSteps::add);
}

}  // namespace

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

void launch(const Problem& original, const Plan& plan, void* workspace, int device, void* stream) {
  const LaunchLabel label{plan.main.config_index, "an empty product"};
  const bool clears_amax = original.has(Slot::amax) && !original.amax_continues;
  if (plan.main.config_index < 0 && !clears_amax) return;
  // A thread that never called CUDA has no context, and encoding a tensor map needs one.
  choose_device(device, label);
  if (clears_amax)
    check(cudaMemsetAsync(reinterpret_cast<void*>(original[Slot::amax].address), 0, sizeof(float),
                          static_cast<cudaStream_t>(stream)),
          "clearing amax before", label);
  if (plan.main.config_index < 0) return;
  const Problem problem = plan.swap_ab ? transposed(original) : original;
  LaunchContext context{problem, plan, plan.main, problem[Slot::a], transposed(problem[Slot::b]),
                        {},      {},   workspace, device,           stream};
  if (plan.passes.split) {
    launch_split_gemm(context);
    return;
  }
  const Matrix a = context.a, b = context.b;
  repack(context);
  sum(plan.passes.sums_a, context);
  sum(plan.passes.sums_b, context);
  if (plan.passes.recompute)
    launch_tf32x2(context, a, b);
  else if (plan.main.grid_adds)
    launch_grid_sums(context);
  else if (plan.stored_slices() > 1)
    launch_slices(context);
  else
    launch_gemm(context);
}

}  // namespace tcgemm::launch
