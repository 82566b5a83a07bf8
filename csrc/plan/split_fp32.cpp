// Split-FP32 plans: which kernels run, where the terms are in the workspace, and what they cost.
#include "plan/split_fp32.h"

#include <array>

#include "catalog.h"
#include "core/split_fp32.h"
#include "plan/slices.h"

namespace tcgemm::plan {
namespace {

// The cheapest kernel for operands of this many terms. Without a filter k is divided as `division`
// says.
std::optional<LaunchConfig> cheapest_kernel(const Problem& problem, const SplitFp32Plan& split,
                                            int terms, const Device& device,
                                            std::string_view filter, double least_bytes,
                                            Search::ConfigFilter config_filter,
                                            Division division = {}, double most = HUGE_VAL) {
  Search search(device, filter, least_bytes, config_filter);
  search.restart(division, most);
  const Matrix a = first_term(split.a, terms, 0), b = first_term(split.b, terms, 0);
  OrientedProblem oriented(with_terms(problem, a, b, terms), false);
  search.try_all_rows(oriented);
  if (!search.best.found()) return std::nullopt;
  return search.best.launch;
}

// The slices of k of the kernel for f16 terms, which a cluster adds: the slices of the product
// without its epilogue.
Division division_of_f16_terms(const Problem& problem, const SplitFp32Plan& split,
                               const Device& device, double least_bytes,
                               Search::ConfigFilter config_filter) {
  const Division whole;
  if (problem.batch_invariant) return whole;
  const Problem plain = partial_sums(problem, 1, row_major_result(problem, DType::f32));
  const auto time = [&](Division division, double most = HUGE_VAL) {
    const auto candidate = cheapest_kernel(plain, split, kF16Terms, device, {}, least_bytes,
                                           config_filter, division, most);
    return candidate ? candidate->microseconds : HUGE_VAL;
  };
  return fastest_division(whole, time(whole), std::array{2, 3, 4, kMostClusterSlices}, true, time);
}

// Config filters. The split-FP32 kernels with the tile of the recompute mask have the shortest
// accumulation chains.
bool has_short_chains(const GemmConfig& config) { return config.warpgroups == 1; }

// Reserves workspace for what is not prepared already.
void carve_split_workspace(SplitFp32Pass& pass, int terms, Plan& plan) {
  if (pass.prepared.terms >= terms) return;
  pass.offset = carve_workspace(plan.workspace, split_fp32_layout(pass, terms).bytes);
}

}  // namespace

std::optional<LaunchConfig> cheapest_fp64_kernel(const Problem& problem, const Device& device,
                                                 Search::ConfigFilter config_filter) {
  Problem unsplit = problem;
  unsplit.reset(Slot::terms_a);
  unsplit.reset(Slot::terms_b);
  Search search(device, "", 0, config_filter);
  OrientedProblem oriented(unsplit, false);
  oriented.may_copy_a = oriented.may_copy_b = false;
  search.try_all_rows(oriented);
  if (!search.best.found()) return std::nullopt;
  return search.best.launch;
}

RecomputePlan recompute_plan(const LaunchConfig& kernel, const Problem& problem, Plan& plan) {
  RecomputePlan recompute{kernel};
  recompute.mask_bytes = std::size_t(problem.batch) * kernel.tiles_m * kernel.tiles_n * kMaskBytes;
  recompute.mask = carve_workspace(plan.workspace, recompute.mask_bytes);
  return recompute;
}

SplitFp32Pass split_fp32_pass(const GemmOperand& operand, const Prepared& prepared) {
  SplitFp32Pass pass;
  pass.source = operand.matrix;
  pass.prepared = prepared;
  pass.mn_major = analyze_layout(operand).major == Major::MN;
  pass.rows = operand.rows;
  pass.k = operand.k;
  pass.batch = operand.matrix.stride_batch == 0 ? 1 : operand.batch;
  pass.pitch = vector_pitch(pass.mn_major ? pass.rows : pass.k, DType::f16);
  return pass;
}

std::size_t prepared_bytes(const Problem& problem, int terms) {
  return split_fp32_layout(split_fp32_pass(operand_b(problem), {}), terms).bytes;
}

std::optional<Plan> plan_split_fp32(const Problem& problem, const Device& device,
                                    std::string_view filter, double least_bytes,
                                    std::int64_t least_depth) {
  // amax would count results that the recompute kernel replaces.
  if (problem.k < least_depth || problem.has(Slot::amax)) return std::nullopt;
  Plan plan;
  SplitFp32Plan split;
  split.a = split_fp32_pass(operand_a(problem), problem.prepared(Slot::terms_a));
  split.b = split_fp32_pass(operand_b(problem), problem.prepared(Slot::terms_b));
  split.bf16 = split.a.prepared.terms == kBf16Terms || split.b.prepared.terms == kBf16Terms;
  std::optional<LaunchConfig> f16, alternative;
  const double result_count = double(problem.batch) * double(problem.m) * double(problem.n);
  const bool long_k = problem.k >= kLongDepth;
  const bool many_results = result_count >= kManyResults;
  Search::ConfigFilter f16_filter = nullptr;
  if (filter.empty() && !many_results)
    f16_filter = long_k || result_count <= kFewResults ? has_recompute_tile : has_short_chains;
  if (!split.bf16)
    f16 = cheapest_kernel(problem, split, kF16Terms, device, filter, least_bytes, f16_filter,
                          division_of_f16_terms(problem, split, device, least_bytes, f16_filter));
  if ((long_k && many_results) || (!f16 && least_depth < kLeastDepth))
    alternative = cheapest_kernel(problem, split, kBf16Terms, device, f16 ? "" : filter,
                                  least_bytes, nullptr);
  else if (f16)
    alternative = cheapest_fp64_kernel(problem, device, nullptr);
  const std::optional<LaunchConfig> recompute =
      cheapest_fp64_kernel(problem, device, has_recompute_tile);
  if (!alternative || !recompute) return std::nullopt;
  split.bf16 = !f16;
  plan.main = f16 ? *f16 : *alternative;
  if (f16) split.alternative = *alternative;

  constexpr double kPasses = 4.5;  // microseconds: launches, and kernels that return at once
  plan.estimate.microseconds = plan.main.microseconds + kPasses + estimate_us(split.a, device) +
                               estimate_us(split.b, device);
  const int terms =
      !f16 || kCatalog[alternative->config_index].terms() > 1 ? kBf16Terms : kF16Terms;
  carve_split_workspace(split.a, terms, plan);
  carve_split_workspace(split.b, terms, plan);
  split.decision = carve_workspace(plan.workspace, sizeof(std::uint32_t));
  split.recompute = recompute_plan(*recompute, problem, plan);
  plan.passes.split = split;
  return plan;
}

double estimate_us(const SplitFp32Pass& pass, const Device& device) {
  if (pass.prepared.terms != 0) return 0;
  constexpr double kShare = 0.85;  // of the copy rate
  const double elements = double(pass.batch) * double(pass.rows) * double(pass.k);
  return 2 * elements * sizeof(float) / (device.memory_rate * kShare) * 1e6;
}

}  // namespace tcgemm::plan
