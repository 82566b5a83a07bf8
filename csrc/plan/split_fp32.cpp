// Where the parts of f32 operands lie, and what making them costs.
#include "plan/split_fp32.h"

#include <algorithm>

#include "catalog.h"
#include "core/split_fp32.h"
#include "plan/select_kernel.h"

namespace tcgemm::plan {
namespace {

// The cheapest kernel for these parts.
std::optional<LaunchConfig> run(const Problem& problem, const SplitFp32Plan& split, int terms,
                                const Device& device, std::string_view filter, double least_bytes,
                                Search::Wanted wanted) {
  Search search(device, filter, least_bytes, wanted);
  const Matrix a = first_term(split.a, terms, 0), b = first_term(split.b, terms, 0);
  search.try_orientation(OrientedProblem(with_terms(problem, a, b, terms), false), false);
  if (!search.found()) return std::nullopt;
  return search.best;
}

// The smallest tile of parts, with the shortest chains; of f64 the one that a flag stands for.
bool recompute_tile(const GemmConfig& config) {
  return config.tile_m() == kRecomputeTile && config.tile_n() == kRecomputeTile;
}
bool short_chains(const GemmConfig& config) { return config.warpgroups == 1; }

// The kernel that computes from the operands themselves what parts cannot.
std::optional<LaunchConfig> through_f64(const Problem& problem, const Device& device,
                                        Search::Wanted wanted) {
  Problem whole = problem;
  whole.prepacked_a.reset();
  whole.prepacked_b.reset();
  Search search(device, "", 0, wanted);
  OrientedProblem oriented(whole, false);
  oriented.may_copy_a = oriented.may_copy_b = false;
  search.try_orientation(oriented, false);
  if (!search.found()) return std::nullopt;
  return search.best;
}

// A blob in the workspace, but for what was made before.
void carve_split_workspace(SplitFp32Pass& pass, int terms, Plan& plan) {
  if (pass.prepacked.terms >= terms) return;
  pass.offset = carve_workspace(plan.workspace, split_fp32_layout(pass, terms).bytes);
}

}  // namespace

SplitFp32Pass split_fp32_pass(const GemmOperand& operand, const std::optional<Prepacked>& made) {
  SplitFp32Pass pass;
  pass.source = operand.matrix;
  if (made) pass.prepacked = *made;
  pass.mn_major = analyze_layout(operand).major == Major::MN;
  pass.rows = operand.rows;
  pass.k = operand.k;
  pass.batch = operand.matrix.stride_batch == 0 ? 1 : operand.batch;
  pass.pitch = line_pitch(pass.mn_major ? pass.rows : pass.k, DType::f16);
  return pass;
}

std::size_t prepacked_bytes(const Problem& problem, int terms) {
  return split_fp32_layout(split_fp32_pass(operand_b(problem), {}), terms).bytes;
}

std::optional<Plan> plan_split_fp32(const Problem& problem, const Device& device,
                                    std::string_view filter, double least_bytes,
                                    std::int64_t least_depth) {
  // amax would count what repair computes again.
  if (problem.k < least_depth || problem.amax) return std::nullopt;
  Plan plan;
  SplitFp32Plan split;
  split.a = split_fp32_pass(operand_a(problem), problem.prepacked_a);
  split.b = split_fp32_pass(operand_b(problem), problem.prepacked_b);
  split.bf16 = split.a.prepacked.terms == kBf16Terms || split.b.prepacked.terms == kBf16Terms;
  std::optional<LaunchConfig> f16, other;
  const double results = double(problem.batch) * double(problem.m) * double(problem.n);
  const bool deep = problem.k >= kLongDepth;
  const bool many = results >= kManyResults;
  Search::Wanted chains = nullptr;
  if (filter.empty() && !many)
    chains = deep || results <= kFewResults ? recompute_tile : short_chains;
  if (!split.bf16) f16 = run(problem, split, kF16Terms, device, filter, least_bytes, chains);
  if ((deep && many) || (!f16 && least_depth < kLeastDepth))
    other = run(problem, split, kBf16Terms, device, f16 ? "" : filter, least_bytes, nullptr);
  else if (f16)
    other = through_f64(problem, device, nullptr);
  const std::optional<LaunchConfig> again = through_f64(problem, device, recompute_tile);
  if (!other || !again) return std::nullopt;
  split.bf16 = !f16;
  static_cast<LaunchConfig&>(plan) = f16 ? *f16 : *other;
  if (f16) split.alternative = *other;
  split.recompute = *again;

  constexpr double kPasses = 4.5;  // microseconds: launches, and kernels that return at once
  plan.microseconds += kPasses + estimate_us(split.a, device) + estimate_us(split.b, device);
  const int terms = !f16 || kCatalog[other->config_index].terms > 1 ? kBf16Terms : kF16Terms;
  carve_split_workspace(split.a, terms, plan);
  carve_split_workspace(split.b, terms, plan);
  split.decision = carve_workspace(plan.workspace, sizeof(std::uint32_t));
  split.recompute_mask_bytes = std::size_t(problem.batch) * again->tiles_m * again->tiles_n;
  split.recompute_mask = carve_workspace(plan.workspace, split.recompute_mask_bytes);
  plan.split = split;
  return plan;
}

double estimate_us(const SplitFp32Pass& pass, const Device& device) {
  if (pass.prepacked.terms != 0) return 0;
  constexpr double kShare = 0.85;  // of the copy rate
  const double elements = double(pass.batch) * double(pass.rows) * double(pass.k);
  return 2 * elements * sizeof(float) / (device.memory_rate * kShare) * 1e6;
}

}  // namespace tcgemm::plan
