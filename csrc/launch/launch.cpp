// Plan -> the passes before the product, and its kernels.
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

// Both copies in one launch; what has none stays as it is.
void repack(LaunchContext& call) {
  RepackParams params{};
  const auto add = [&](const std::optional<RepackPass>& pass, Matrix& operand) {
    if (!pass) return;
    operand = repacked(*pass, reinterpret_cast<std::uintptr_t>(call.workspace));
    CopyParams& copy = params.copies[params.count++];
    copy.source = tensor_ref(pass->source, pass->rows, pass->k, pass->batch);
    copy.copy = reinterpret_cast<void*>(operand.address);
    copy.to = pass->to;
    copy.rows = pass->rows;
    copy.k = pass->k;
    copy.batch = pass->batch;
    copy.pitch = pass->pitch;
  };
  add(call.plan.repack_a, call.a);
  add(call.plan.repack_b, call.b);
  if (params.count == 0) return;
  launch_kernel(kernels::repack(params), &params,
                {kernels::repack_blocks(params), kernels::kRepackThreads, 0, 1,
                 supports_dependent_launch(call.device)},
                call.stream, {-1, "the prepare pass"});
}

void sum(const std::optional<SumPass>& pass, const LaunchContext& call) {
  if (!pass) return;
  SumParams params{};
  params.source = tensor_ref(pass->source, pass->rows, pass->k, pass->batch);
  params.sums = reinterpret_cast<std::int32_t*>(static_cast<char*>(call.workspace) + pass->offset);
  params.rows = pass->rows;
  params.k = pass->k;
  params.batch = pass->batch;
  launch_kernel(kernels::sums(), &params,
                {kernels::sum_blocks(params), kernels::kSumThreads, 0, 1,
                 supports_dependent_launch(call.device)},
                call.stream, {-1, "the sums for zero points"});
}

}  // namespace

void launch(const Problem& asked, const Plan& plan, void* workspace, int device, void* stream) {
  const LaunchLabel label{plan.config_index, "an empty product"};
  const bool clear = asked.amax && !asked.amax_continues;
  if (plan.config_index < 0 && !clear) return;
  // A thread that never called CUDA has no context, and encoding a tensor map asks for one.
  check(cudaSetDevice(device), "choosing the device for", label);
  if (clear)
    check(cudaMemsetAsync(reinterpret_cast<void*>(asked.amax->address), 0, sizeof(float),
                          static_cast<cudaStream_t>(stream)),
          "clearing amax before", label);
  if (plan.config_index < 0) return;
  const Problem problem = plan.swap_ab ? transposed(asked) : asked;
  LaunchContext call{problem, plan, plan,      problem.a, transposed(problem.b),
                     {},      {},   workspace, device,    stream};
  if (plan.split) {
    launch_split_gemm(call);
    return;
  }
  repack(call);
  sum(plan.sums_a, call);
  sum(plan.sums_b, call);
  launch_gemm(call);
}

}  // namespace tcgemm::launch
