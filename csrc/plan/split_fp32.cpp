// Where the parts of f32 operands lie, and what making them costs.
#include "plan/split_fp32.h"

#include <algorithm>

#include "catalog.h"
#include "core/split_fp32.h"
#include "plan/select_kernel.h"

namespace tcgemm::plan {
namespace {

// The cheapest kernel for these parts.
std::optional<Run> run(const Problem& problem, const Split& split, int parts, const Device& device,
                       std::string_view filter, double least_bytes, Search::Wanted wanted) {
  Search search(device, filter, least_bytes, wanted);
  const Matrix a = first_part(split.a, parts, 0), b = first_part(split.b, parts, 0);
  search.try_side(Side(in_parts(problem, a, b, parts), false), false);
  if (!search.found()) return std::nullopt;
  return search.best;
}

// The smallest tile of parts, with the shortest chains; of f64 the one that a flag stands for.
bool flag_tile(const Kernel& kernel) {
  return kernel.tile_m() == kFlagTile && kernel.tile_n() == kFlagTile;
}
bool short_chains(const Kernel& kernel) { return kernel.warpgroups == 1; }

// The kernel that computes from the operands themselves what parts cannot.
std::optional<Run> through_f64(const Problem& problem, const Device& device,
                               Search::Wanted wanted) {
  Problem whole = problem;
  whole.prepared_a.reset();
  whole.prepared_b.reset();
  Search search(device, "", 0, wanted);
  Side side(whole, false);
  side.may_copy_a = side.may_copy_b = false;
  search.try_side(side, false);
  if (!search.found()) return std::nullopt;
  return search.best;
}

// A blob in the workspace, but for what was made before.
void place_blob(SplitPass& pass, int parts, Plan& plan) {
  if (pass.made.parts >= parts) return;
  pass.offset = place(plan.workspace, blob_layout(pass, parts).bytes);
}

}  // namespace

SplitPass split_pass(const Operand& operand, const std::optional<Prepared>& made) {
  SplitPass pass;
  pass.source = operand.matrix;
  if (made) pass.made = *made;
  pass.mn_major = read(operand).major == Major::MN;
  pass.rows = operand.rows;
  pass.k = operand.k;
  pass.batch = operand.matrix.stride_batch == 0 ? 1 : operand.batch;
  pass.pitch = line_pitch(pass.mn_major ? pass.rows : pass.k, DType::f16);
  return pass;
}

std::size_t blob_bytes(const Problem& problem, int parts) {
  return blob_layout(split_pass(operand_b(problem), {}), parts).bytes;
}

std::optional<Plan> plan_parts(const Problem& problem, const Device& device,
                               std::string_view filter, double least_bytes,
                               std::int64_t least_depth) {
  // amax would count what repair computes again.
  if (problem.k < least_depth || problem.amax) return std::nullopt;
  Plan plan;
  Split split;
  split.a = split_pass(operand_a(problem), problem.prepared_a);
  split.b = split_pass(operand_b(problem), problem.prepared_b);
  split.bf16 = split.a.made.parts == kBf16Parts || split.b.made.parts == kBf16Parts;
  std::optional<Run> f16, other;
  const double results = double(problem.batch) * double(problem.m) * double(problem.n);
  const bool deep = problem.k >= kLongDepth;
  const bool many = results >= kManyResults;
  Search::Wanted chains = nullptr;
  if (filter.empty() && !many) chains = deep || results <= kFewResults ? flag_tile : short_chains;
  if (!split.bf16) f16 = run(problem, split, kF16Parts, device, filter, least_bytes, chains);
  if ((deep && many) || (!f16 && least_depth < kLeastDepth))
    other = run(problem, split, kBf16Parts, device, f16 ? "" : filter, least_bytes, nullptr);
  else if (f16)
    other = through_f64(problem, device, nullptr);
  const std::optional<Run> again = through_f64(problem, device, flag_tile);
  if (!other || !again) return std::nullopt;
  split.bf16 = !f16;
  static_cast<Run&>(plan) = f16 ? *f16 : *other;
  if (f16) split.other = *other;
  split.repair = *again;

  constexpr double kPasses = 4.5;  // microseconds: launches, and kernels that return at once
  plan.microseconds += kPasses + cost(split.a, device) + cost(split.b, device);
  const int parts = !f16 || kCatalog[other->kernel].parts > 1 ? kBf16Parts : kF16Parts;
  place_blob(split.a, parts, plan);
  place_blob(split.b, parts, plan);
  split.verdict = place(plan.workspace, sizeof(std::uint32_t));
  split.flag_bytes = std::size_t(problem.batch) * again->tiles_m * again->tiles_n;
  split.flags = place(plan.workspace, split.flag_bytes);
  plan.split = split;
  return plan;
}

double cost(const SplitPass& pass, const Device& device) {
  if (pass.made.parts != 0) return 0;
  constexpr double kShare = 0.85;  // of the copy rate
  const double elements = double(pass.batch) * double(pass.rows) * double(pass.k);
  return 2 * elements * sizeof(float) / (device.memory_rate * kShare) * 1e6;
}

}  // namespace tcgemm::plan
