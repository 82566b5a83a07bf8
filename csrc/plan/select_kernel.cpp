// The walk over the catalog, and what the planner knows of its rows beforehand.
#include "plan/select_kernel.h"

#include <array>
#include <cmath>

#include "catalog.h"

namespace tcgemm::plan {
namespace {

// What a row computes, whatever its layout and tile, as one number.
constexpr std::uint32_t kind(DType a, DType b, DType accumulator, bool block_scaled, bool promotes,
                             int parts, bool sparse) {
  return std::uint32_t(a) | std::uint32_t(b) << 8 | std::uint32_t(accumulator) << 16 |
         std::uint32_t(block_scaled) << 24 | std::uint32_t(promotes) << 25 |
         std::uint32_t(parts) << 26 | std::uint32_t(sparse) << 28;
}

// Of every row, or none that is asked for where this build lacks it. Comparing names takes
// microseconds, so it is done when this file is compiled.
constexpr std::uint32_t kNotBuilt = ~0u;
constexpr auto kKinds = [] {
  std::array<std::uint32_t, kCatalog.size()> kinds{};
  for (std::size_t i = 0; i < kCatalog.size(); ++i) {
    const Kernel& row = kCatalog[i];
    kinds[i] = built(row) ? kind(row.input, row.input_b, row.accumulator, row.block_scaled,
                                 row.promotes(), row.parts, row.sparse)
                          : kNotBuilt;
  }
  return kinds;
}();

// The rows that compute what is asked: of one kind, or of two where sums need not be promoted,
// since promoted ones are better still.
struct Kinds {
  std::uint32_t plain = kNotBuilt, promoted;

  explicit Kinds(const Problem& problem) {
    // Without depth there is nothing to scale or to add up, and any kernel has the right zeros.
    const bool blocks = problem.k > 0 && problem.block_scaled();
    // f32 operands that are not rounded are multiplied as f64.
    const DType accumulator = problem.input_a == DType::f32 ? DType::f64 : problem.accumulator;
    const auto with = [&](bool promotes) {
      return kind(problem.input_a, problem.input_b, accumulator, blocks, promotes, problem.parts,
                  problem.sparse_a.has_value());
    };
    promoted = with(true);
    if (!blocks && problem.parts == 1 && !(problem.k > 0 && problem.promote)) plain = with(false);
  }

  bool hold(std::uint32_t row) const {
    return row == promoted || (row == plain && row != kNotBuilt);
  }
};

// What the arithmetic is estimated to take, and no less than the bytes take. Where they bind, the
// kernel with less to do beside them is still the better one.
double with_memory(double microseconds, double bytes, const Device& device) {
  constexpr double kLaunch = 2.0;
  constexpr double kHidden = 0.05;
  const double floor = kLaunch + bytes / device.memory_rate * 1e6;
  return std::max(microseconds, floor) + kHidden * std::min(microseconds, floor);
}

}  // namespace

std::string types(DType a, DType b, DType accumulator) {
  const std::string operands = a == b ? name(a) : std::string(name(a)) + " by " + name(b);
  return operands + " (accumulator " + name(accumulator) + ")";
}

std::string multiplied(const Code& code, bool sparse) {
  std::string have;
  for (std::size_t row = 0; row < kCatalog.size(); ++row) {
    const Kernel& kernel = kCatalog[row];
    if (kKinds[row] == kNotBuilt || !holds(code, kernel.arch) || kernel.parts > 1 ||
        kernel.sparse != sparse)
      continue;
    const DType accumulator = kernel.input == DType::f32 ? DType::f32 : kernel.accumulator;
    const std::string words = types(kernel.input, kernel.input_b, accumulator);
    if ((", " + have + ",").find(", " + words + ",") == std::string::npos)
      have += (have.empty() ? "" : ", ") + words;
  }
  return have;
}

bool turns(DType input) {
  static constexpr auto kTurned = [] {
    std::array<bool, kDTypes> flags{};
    for (const Kernel& row : kCatalog)
      if (row.source_of_a == SourceOfA::registers) flags[int(row.input)] = true;
    return flags;
  }();
  return kTurned[int(input)];
}

Search::Search(const Device& device, std::string_view filter, double least_bytes, Wanted wanted)
    : device_(device),
      code_(code_on(device.compute_capability)),
      filter_(filter),
      least_bytes_(least_bytes),
      wanted_(wanted) {
  best.microseconds = HUGE_VAL;
}

void Search::try_side(Side side, bool turning) {
  const Kinds kinds(side.problem);
  for (std::size_t row = 0; row < kCatalog.size(); ++row) {
    if (!kinds.hold(kKinds[row])) continue;
    const Kernel& kernel = kCatalog[row];
    if (!holds(code_, kernel.arch)) continue;
    if (turning && kernel.source_of_a != SourceOfA::registers) continue;
    if (wanted_ != nullptr && !wanted_(kernel)) continue;
    if (!filter_.empty() && !matches(name(kernel), filter_)) continue;
    for (int choice = 0; choice < 4; ++choice)
      if (side.choose(choice)) try_kernel(side, int(row));
  }
}

void Search::try_kernel(const Side& side, int row) {
  const Kernel& kernel = kCatalog[row];
  const Inputs& inputs = side.inputs;
  Plan plan;
  const auto fit = kernel.uses_tma() ? fit_sm90 : kernel.arch == Arch::sm90a ? fit_f64 : fit_sm80;
  if (!fit(kernel, side.problem, device_, inputs, plan)) return;
  plan.microseconds = with_memory(plan.microseconds, least_bytes_, device_);
  if (inputs.a.prepared || inputs.b.prepared) plan.microseconds += kPassLaunch;
  plan.kernel = row;
  plan.transposed = side.transposed;
  const auto copy = [&](const Operand& operand, const Input& input) {
    const Prepare pass = prepare(operand);
    plan.microseconds += cost(pass, input.reading, device_);
    return pass;
  };
  if (inputs.a.prepared) plan.prepare_a = copy(side.a, inputs.a);
  if (inputs.b.prepared) plan.prepare_b = copy(side.b, inputs.b);
  if (plan.microseconds < best.microseconds) best = plan;
}

}  // namespace tcgemm::plan
