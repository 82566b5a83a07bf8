// SplitFp32Plan -> SplitFp32PassParams, and the launches of passes and kernels.
#include "launch/split_fp32.h"

#include <algorithm>
#include <cstdint>

#include "catalog.h"
#include "core/split_fp32.h"
#include "kernels/kernels.h"
#include "launch/launch_kernel.h"
#include "launch/params.h"

namespace tcgemm::launch {
namespace {

template <class T>
T* pointer_at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// Pointers to the statistics, ranges and terms of an operand: in the call's workspace, or in part
// in a prepared operand.
struct WorkspacePointers {
  std::uint32_t* statistics;
  Range* ranges;
  std::uintptr_t terms[2];  // f16, bf16

  WorkspacePointers(const SplitFp32Pass& pass, std::uintptr_t workspace) {
    const std::uintptr_t own = workspace + pass.offset;
    const std::uintptr_t prepared = pass.prepared.terms ? pass.prepared.address : own;
    const SplitFp32Layout layout = split_fp32_layout(pass, kBf16Terms);
    statistics = pointer_at<std::uint32_t>(prepared + layout.statistics);
    ranges = pointer_at<Range>(prepared + layout.ranges);
    terms[0] = (pass.prepared.terms == kF16Terms ? prepared : own) + layout.terms;
    terms[1] = (pass.prepared.terms == kBf16Terms ? prepared : own) + layout.terms;
  }
};

SplitFp32Operand operand(const SplitFp32Pass& pass, const WorkspacePointers& pointers, int terms) {
  SplitFp32Operand result{};
  result.source = tensor_ref(pass.source, pass.rows, pass.k, pass.batch);
  result.mn_major = pass.mn_major;
  result.ranges = pointers.ranges;
  result.statistics = pointers.statistics;
  result.terms = pointer_at<void>(pointers.terms[terms == kBf16Terms]);
  result.rows = pass.rows;
  result.k = pass.k;
  result.batch = pass.batch;
  result.pitch = pass.pitch;
  result.term_stride = pass.term_stride();
  return result;
}

// Launches both split passes over up to two operands, which become up to `max_terms` terms. An
// operand whose terms are prepared is left out of the passes that it does not need.
void launch_split_passes(SplitFp32PassParams params, const SplitFp32Pass* const (&passes)[2],
                         const WorkspacePointers* const (&pointers)[2], int max_terms, int device,
                         void* stream) {
  // Puts into `params` the operands that a pass must read.
  const auto select_operands = [&](int terms) {
    params.count = 0;
    for (int i = 0; i < 2; ++i)
      if (passes[i] != nullptr && passes[i]->prepared.terms < terms && terms <= max_terms)
        params.operands[params.count++] = operand(*passes[i], *pointers[i], terms);
    kernels::partition_split(params);
  };
  for (int i = 0; i < 2; ++i) {
    params.statistics[i] = pointers[i] ? pointers[i]->statistics : nullptr;
    params.statistics_counts[i] =
        pointers[i] ? kernels::split_statistics_count(operand(*passes[i], *pointers[i], kF16Terms))
                    : 0;
  }
  select_operands(kF16Terms);
  launch_pass(kernels::split_first(), &params, kernels::split_first_blocks(params),
              kernels::kSplitThreads, device, stream, {-1, "the first split pass"}, params.cluster);
  select_operands(kBf16Terms);
  launch_pass(kernels::split_second(), &params, kernels::split_second_blocks(params),
              kernels::kSplitThreads, device, stream, {-1, "the second split pass"});
}

// The parameters of a kernel that marks tiles in the mask.
SplitFp32Params with_mask(const RecomputePlan& plan, std::uintptr_t workspace) {
  SplitFp32Params params;
  params.recompute_mask = pointer_at<std::uint8_t>(workspace + plan.mask);
  params.mask_m = std::int32_t(plan.kernel.tiles_m);
  params.mask_n = std::int32_t(plan.kernel.tiles_n);
  return params;
}

// Computes the tiles of the mask again, if the decision says so. nullptr: in any case.
void recompute(LaunchContext call, const RecomputePlan& plan, const std::uint32_t* decision) {
  const std::uintptr_t workspace = reinterpret_cast<std::uintptr_t>(call.workspace);
  call.run = plan.kernel;
  call.filter = {decision, pointer_at<const std::uint32_t>(workspace + plan.mask)};
  launch_gemm(call);
}

}  // namespace

void launch_split_gemm(const LaunchContext& call) {
  const SplitFp32Plan& passes = *call.plan.passes.split;
  const Problem& problem = call.problem;
  const std::uintptr_t workspace = reinterpret_cast<std::uintptr_t>(call.workspace);
  const WorkspacePointers a(passes.a, workspace), b(passes.b, workspace);

  SplitFp32PassParams params{};
  params.bf16 = passes.bf16;
  params.top = split_top(kBf16Terms, problem.k);
  params.decision = pointer_at<std::uint32_t>(workspace + passes.decision);
  params.recompute_mask = pointer_at<std::uint8_t>(workspace + passes.recompute.mask);
  params.recompute_mask_bytes = std::int64_t(passes.recompute.mask_bytes);
  const int main_terms = kCatalog[call.plan.main.config_index].terms();
  const int alternative_terms =
      passes.alternative.config_index < 0 ? 1 : kCatalog[passes.alternative.config_index].terms();
  launch_split_passes(params, {&passes.a, &passes.b}, {&a, &b},
                      std::max(main_terms, alternative_terms), call.device, call.stream);

  for (const LaunchConfig& run : {call.plan.main, passes.alternative}) {
    if (run.config_index < 0) continue;
    const int terms = kCatalog[run.config_index].terms();
    if (terms == 1) {
      LaunchContext fallback = call;
      fallback.run = run;
      fallback.filter = {params.decision, nullptr};
      launch_gemm(fallback);
      continue;
    }
    const Matrix term_a = first_term(passes.a, terms, a.terms[terms == kBf16Terms]);
    const Matrix term_b = first_term(passes.b, terms, b.terms[terms == kBf16Terms]);
    const Problem term_problem = with_terms(problem, term_a, term_b, terms);
    SplitFp32Params split_params = with_mask(passes.recompute, workspace);
    split_params.decision = params.decision;
    split_params.ranges_a = a.ranges;
    split_params.ranges_b = b.ranges;
    split_params.copies_a = std::int32_t(passes.a.batch);
    split_params.copies_b = std::int32_t(passes.b.batch);
    split_params.top = split_top(terms, problem.k);
    split_params.max_spread = max_spread(terms, problem.k);
    split_params.error_threshold = error_threshold(terms, problem.k);
    launch_gemm({term_problem,
                 call.plan,
                 run,
                 term_a,
                 term_b,
                 split_params,
                 {},
                 call.workspace,
                 call.device,
                 call.stream});
  }
  recompute(call, passes.recompute, params.decision);
}

void launch_tf32x2(const LaunchContext& call, const Matrix& a, const Matrix& b) {
  const RecomputePlan& plan = *call.plan.passes.recompute;
  LaunchContext main = call;
  main.split = with_mask(plan, reinterpret_cast<std::uintptr_t>(call.workspace));
  launch_gemm(main);
  LaunchContext again = call;
  again.a = a;
  again.b = b;
  recompute(again, plan, nullptr);
}

void prepare(const SplitFp32Pass& pass, void* prepared, int device, void* stream) {
  choose_device(device, {-1, "prepare"});
  const WorkspacePointers pointers(pass, reinterpret_cast<std::uintptr_t>(prepared));
  SplitFp32PassParams params{};
  params.top = split_top(kBf16Terms, pass.k);
  params.decision = static_cast<std::uint32_t*>(prepared);
  launch_split_passes(params, {&pass, nullptr}, {&pointers, nullptr}, kBf16Terms, device, stream);
}

}  // namespace tcgemm::launch
