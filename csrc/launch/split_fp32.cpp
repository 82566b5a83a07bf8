// Split -> SplitFp32PassParams, and the chain of kernels.
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
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// Where the pieces of an operand's blob lie: in the workspace, or partly in one made before.
struct Pieces {
  std::uint32_t* statistics;
  Range* ranges;
  std::uintptr_t terms[2];  // of f16 and of bf16

  Pieces(const SplitFp32Pass& pass, std::uintptr_t workspace) {
    const std::uintptr_t own = workspace + pass.offset;
    const std::uintptr_t prepacked = pass.prepacked.terms ? pass.prepacked.address : own;
    const SplitFp32Layout layout = split_fp32_layout(pass, kBf16Terms);
    statistics = at<std::uint32_t>(prepacked + layout.statistics);
    ranges = at<Range>(prepacked + layout.ranges);
    terms[0] = (pass.prepacked.terms == kF16Terms ? prepacked : own) + layout.terms;
    terms[1] = (pass.prepacked.terms == kBf16Terms ? prepacked : own) + layout.terms;
  }
};

SplitFp32Operand operand(const SplitFp32Pass& pass, const Pieces& pieces, int terms) {
  SplitFp32Operand result{};
  result.source = tensor_ref(pass.source, pass.rows, pass.k, pass.batch);
  result.mn_major = pass.mn_major;
  result.ranges = pieces.ranges;
  result.statistics = pieces.statistics;
  result.terms = at<void>(pieces.terms[terms == kBf16Terms]);
  result.rows = pass.rows;
  result.k = pass.k;
  result.batch = pass.batch;
  result.pitch = pass.pitch;
  result.distance = pass.distance();
  return result;
}

// Both passes over up to two operands, for parts of up to this many; those with parts that were
// made before are left out where they can be.
void split(SplitFp32PassParams params, const SplitFp32Pass* const (&passes)[2],
           const Pieces* const (&pieces)[2], int most_parts, int device, void* stream) {
  // Leaves in `params` the operands that a pass has to read.
  const auto choose = [&](int terms) {
    params.count = 0;
    for (int i = 0; i < 2; ++i)
      if (passes[i] != nullptr && passes[i]->prepacked.terms < terms && terms <= most_parts)
        params.operands[params.count++] = operand(*passes[i], *pieces[i], terms);
    kernels::split_cut(params);
  };
  for (int i = 0; i < 2; ++i) {
    params.statistics[i] = pieces[i] ? pieces[i]->statistics : nullptr;
    params.statistics_counts[i] =
        pieces[i] ? kernels::split_statistics_count(operand(*passes[i], *pieces[i], kF16Terms)) : 0;
  }
  choose(kF16Terms);
  launch_kernel(kernels::split_first(), &params,
                {kernels::split_first_blocks(params), kernels::kSplitThreads, 0, params.cluster,
                 supports_dependent_launch(device)},
                stream, {-1, "the first split pass"});
  choose(kBf16Terms);
  launch_kernel(kernels::split_second(), &params,
                {kernels::split_second_blocks(params), kernels::kSplitThreads, 0, 1,
                 supports_dependent_launch(device)},
                stream, {-1, "the second split pass"});
}

}  // namespace

void launch_split_gemm(const LaunchContext& call) {
  const SplitFp32Plan& passes = *call.plan.split;
  const Problem& problem = call.problem;
  const std::uintptr_t workspace = reinterpret_cast<std::uintptr_t>(call.workspace);
  const Pieces a(passes.a, workspace), b(passes.b, workspace);

  SplitFp32PassParams params{};
  params.bf16 = passes.bf16;
  params.top = split_top(kBf16Terms, problem.k);
  params.decision = at<std::uint32_t>(workspace + passes.decision);
  params.recompute_mask = at<std::uint8_t>(workspace + passes.recompute_mask);
  params.recompute_mask_bytes = passes.recompute_mask_bytes;
  const int own = kCatalog[call.plan.config_index].terms;
  const int others =
      passes.alternative.config_index < 0 ? 1 : kCatalog[passes.alternative.config_index].terms;
  split(params, {&passes.a, &passes.b}, {&a, &b}, std::max(own, others), call.device, call.stream);

  for (const LaunchConfig& run :
       {static_cast<const LaunchConfig&>(call.plan), passes.alternative}) {
    if (run.config_index < 0) continue;
    const int terms = kCatalog[run.config_index].terms;
    if (terms == 1) {
      LaunchContext whole = call;
      whole.run = run;
      whole.filter = {params.decision, nullptr};
      launch_gemm(whole);
      continue;
    }
    const Matrix term_a = first_term(passes.a, terms, a.terms[terms == kBf16Terms]);
    const Matrix term_b = first_term(passes.b, terms, b.terms[terms == kBf16Terms]);
    const Problem multiplied = with_terms(problem, term_a, term_b, terms);
    SplitFp32Params of{};
    of.decision = params.decision;
    of.ranges_a = a.ranges;
    of.ranges_b = b.ranges;
    of.recompute_mask = params.recompute_mask;
    of.mask_m = std::int32_t(passes.recompute.tiles_m);
    of.mask_n = std::int32_t(passes.recompute.tiles_n);
    of.copies_a = std::int32_t(passes.a.batch);
    of.copies_b = std::int32_t(passes.b.batch);
    of.top = split_top(terms, problem.k);
    of.max_spread = max_spread(terms, problem.k);
    of.error_threshold = error_threshold(terms, problem.k);
    launch_gemm({multiplied,
                 call.plan,
                 run,
                 term_a,
                 term_b,
                 of,
                 {},
                 call.workspace,
                 call.device,
                 call.stream});
  }
  LaunchContext again = call;
  again.run = passes.recompute;
  again.filter = {params.decision, params.recompute_mask};
  launch_gemm(again);
}

void prepack(const SplitFp32Pass& pass, void* prepacked, int device, void* stream) {
  check(cudaSetDevice(device), "choosing the device for", {-1, "prepare"});
  const Pieces pieces(pass, reinterpret_cast<std::uintptr_t>(prepacked));
  SplitFp32PassParams params{};
  params.top = split_top(kBf16Terms, pass.k);
  params.decision = static_cast<std::uint32_t*>(prepacked);
  split(params, {&pass, nullptr}, {&pieces, nullptr}, kBf16Terms, device, stream);
}

}  // namespace tcgemm::launch
