// A direct-mapped table: each hash has one entry, and a newer plan overwrites it.
#include "plan/plan_cache.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "plan/operand.h"
#include "plan/tuned.h"

namespace tcgemm::plan {
namespace {

struct Entry {
  std::uint64_t generation = 0;  // of the tuned choices
  const Device* device = nullptr;
  Problem problem;
  Plan plan;
};

constexpr int kHashBits = 8;
constexpr std::size_t kEntries = std::size_t(1) << kHashBits;  // 500 KB for each thread that plans

// The problem with each address reduced to its alignment, which is all that a plan depends on.
Problem without_addresses(Problem problem) {
  for (const Slot slot : problem.operands.given()) {
    const bool is_opaque = operand_row(slot).dtypes == DTypeRule::bytes;
    problem[slot].address %= is_opaque ? 1 : kMaxAlignment;
  }
  return problem;
}

std::size_t index_of(const Problem& problem) {
  std::uint64_t hash = 0;
  for (std::int64_t value :
       {problem.batch, problem.m, problem.n, problem.k, problem[Slot::a].stride_row,
        problem[Slot::b].stride_row, std::int64_t(problem[Slot::out].dtype)})
    hash = (hash ^ std::uint64_t(value)) * 0x9e3779b97f4a7c15;
  return hash >> (64 - kHashBits);
}

// Sets the addresses in the passes of a plan to those of the problem.
void set_addresses(Plan& plan, const Problem& problem) {
  Passes& passes = plan.passes;
  const auto address = [&](Slot slot) {
    return problem[plan.swap_ab ? partner(slot) : slot].address;
  };
  const auto set = [&](auto& pass, Slot slot) {
    if (pass) pass->source.address = address(slot);
  };
  set(passes.repack_a, Slot::a);
  set(passes.repack_b, Slot::b);
  set(passes.sums_a, Slot::a);
  set(passes.sums_b, Slot::b);
  if (!passes.split) return;
  const auto set_split = [&](SplitFp32Pass& pass, Slot slot, Slot terms) {
    pass.source.address = address(slot);
    if (pass.prepared.terms != 0) pass.prepared.address = address(terms);
  };
  set_split(passes.split->a, Slot::a, Slot::terms_a);
  set_split(passes.split->b, Slot::b, Slot::terms_b);
}

}  // namespace

Plan cached_plan(const Problem& problem, const Device& device, MakePlan make) {
  thread_local const auto entries = std::make_unique<std::array<Entry, kEntries>>();
  const Problem key = without_addresses(problem);
  Entry& entry = (*entries)[index_of(key)];
  const std::uint64_t generation = tuned_generation();
  if (entry.device != &device || entry.generation != generation || entry.problem != key)
    entry = {generation, &device, key, make(problem, device)};
  Plan plan = entry.plan;
  set_addresses(plan, problem);
  return plan;
}

}  // namespace tcgemm::plan
