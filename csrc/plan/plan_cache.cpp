// A direct-mapped table: each hash has one slot, and a newer plan overwrites it.
#include "plan/plan_cache.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "plan/operand.h"

namespace tcgemm::plan {
namespace {

struct Entry {
  const Device* device = nullptr;
  Problem problem;
  Plan plan;
};

constexpr int kHashBits = 6;
constexpr std::size_t kEntries = std::size_t(1) << kHashBits;  // 100 KB for each thread that plans

// The problem with each address reduced to its alignment, which is all that a plan depends on.
Problem without_addresses(Problem problem) {
  const auto keep_alignment = [](Matrix& matrix) { matrix.address %= kMaxAlignment; };
  for (Matrix* matrix : {&problem.a, &problem.b, &problem.out}) keep_alignment(*matrix);
  for (auto option : {&Problem::c, &Problem::bias, &Problem::residual, &Problem::zero_a,
                      &Problem::zero_b, &Problem::scale_out, &Problem::amax})
    if (problem.*option) keep_alignment(*(problem.*option));
  for (auto scale : {&Problem::scale_a, &Problem::scale_b})
    if (problem.*scale) keep_alignment((problem.*scale)->values);
  for (auto prepacked : {&Problem::prepacked_a, &Problem::prepacked_b})
    if (problem.*prepacked) (problem.*prepacked)->address = 0;
  for (auto sparse : {&Problem::sparse_a, &Problem::sparse_b})
    if (problem.*sparse) (problem.*sparse)->tiles = 0;
  return problem;
}

std::size_t slot_of(const Problem& problem) {
  std::uint64_t hash = 0;
  for (std::int64_t value : {problem.batch, problem.m, problem.n, problem.k, problem.a.stride_row,
                             problem.b.stride_row, std::int64_t(problem.out.dtype)})
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
  Entry& entry = (*entries)[slot_of(key)];
  if (entry.device == &device && entry.problem == key) return entry.plan;
  const Plan plan = make(problem, device);
  if (!has_passes(plan)) entry = {&device, key, plan};
  return plan;
}

}  // namespace tcgemm::plan
