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

constexpr int kHashBits = 6;
constexpr std::size_t kEntries = std::size_t(1) << kHashBits;  // 100 KB for each thread that plans

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

bool has_passes(const Plan& plan) {
  const Passes& passes = plan.passes;
  return passes.repack_a || passes.repack_b || passes.sums_a || passes.sums_b || passes.split;
}

}  // namespace

Plan cached_plan(const Problem& problem, const Device& device, MakePlan make) {
  thread_local const auto entries = std::make_unique<std::array<Entry, kEntries>>();
  const Problem key = without_addresses(problem);
  Entry& entry = (*entries)[index_of(key)];
  const std::uint64_t generation = tuned_generation();
  if (entry.device == &device && entry.generation == generation && entry.problem == key)
    return entry.plan;
  const Plan plan = make(problem, device);
  if (!has_passes(plan)) entry = {generation, &device, key, plan};
  return plan;
}

}  // namespace tcgemm::plan
