// Plan -> the passes before the product, and its kernels.
#include "launch/launch.h"

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/kernels.h"
#include "launch/params.h"
#include "launch/gemm.h"
#include "launch/split_fp32.h"
#include "launch/launch_kernel.h"

namespace tcgemm::launch {
namespace {

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
  Call call{problem, plan, plan,      problem.a, transposed(problem.b),
            {},      {},   workspace, device,    stream};
  if (plan.split) {
    product_of_parts(call);
    return;
  }
  prepare(call);
  sum(plan.sums_a, call);
  sum(plan.sums_b, call);
  product(call);
}

}  // namespace tcgemm::launch
