// The walk over the catalog, and what the planner knows of its rows beforehand.
#include "plan/select_kernel.h"

#include <array>
#include <cmath>

#include "catalog.h"

namespace tcgemm::plan {
namespace {

// What a row computes, whatever its layout and tile, as one number.
constexpr std::uint32_t kind(DType a, DType b, DType accumulator, bool block_scaled, bool promotes,
                             int terms, bool sparse) {
  return std::uint32_t(a) | std::uint32_t(b) << 8 | std::uint32_t(accumulator) << 16 |
         std::uint32_t(block_scaled) << 24 | std::uint32_t(promotes) << 25 |
         std::uint32_t(terms) << 26 | std::uint32_t(sparse) << 28;
}

// Of every row, or none that is asked for where this build lacks it. Comparing names takes
// microseconds, so it is done when this file is compiled.
constexpr std::uint32_t kNotBuilt = ~0u;
constexpr auto kKinds = [] {
  std::array<std::uint32_t, kCatalog.size()> kinds{};
  for (std::size_t i = 0; i < kCatalog.size(); ++i) {
    const GemmConfig& config = kCatalog[i];
    kinds[i] = built(config)
                   ? kind(config.input, config.input_b, config.accumulator, config.block_scaled,
                          config.promotes(), config.terms, config.sparse)
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
    // f32 operands that are not rounded are supported_products as f64.
    const DType accumulator = problem.input_a == DType::f32 ? DType::f64 : problem.accumulator;
    const auto with = [&](bool promotes) {
      return kind(problem.input_a, problem.input_b, accumulator, blocks, promotes, problem.terms,
                  problem.sparse_a.has_value());
    };
    promoted = with(true);
    if (!blocks && problem.terms == 1 && !(problem.k > 0 && problem.promote)) plain = with(false);
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

std::string supported_products(const Code& code, bool sparse) {
  std::string have;
  for (std::size_t row = 0; row < kCatalog.size(); ++row) {
    const GemmConfig& config = kCatalog[row];
    if (kKinds[row] == kNotBuilt || !holds(code, config.arch) || config.terms > 1 ||
        config.sparse != sparse)
      continue;
    const DType accumulator = config.input == DType::f32 ? DType::f32 : config.accumulator;
    const std::string words = types(config.input, config.input_b, accumulator);
    if ((", " + have + ",").find(", " + words + ",") == std::string::npos)
      have += (have.empty() ? "" : ", ") + words;
  }
  return have;
}

bool has_rs_kernel(DType input) {
  static constexpr auto kHasRs = [] {
    std::array<bool, kDTypes> flags{};
    for (const GemmConfig& config : kCatalog)
      if (config.operand_source == OperandSource::RS) flags[int(config.input)] = true;
    return flags;
  }();
  return kHasRs[int(input)];
}

Search::Search(const Device& device, std::string_view filter, double least_bytes, Wanted wanted)
    : device_(device),
      code_(code_on(device.compute_capability)),
      filter_(filter),
      least_bytes_(least_bytes),
      wanted_(wanted) {
  best.microseconds = HUGE_VAL;
}

void Search::try_orientation(OrientedProblem oriented, bool rs_only) {
  const Kinds kinds(oriented.problem);
  for (std::size_t row = 0; row < kCatalog.size(); ++row) {
    if (!kinds.hold(kKinds[row])) continue;
    const GemmConfig& config = kCatalog[row];
    if (!holds(code_, config.arch)) continue;
    if (rs_only && config.operand_source != OperandSource::RS) continue;
    if (wanted_ != nullptr && !wanted_(config)) continue;
    if (!filter_.empty() && !matches(name(config), filter_)) continue;
    for (int choice = 0; choice < 4; ++choice)
      if (oriented.choose(choice)) try_kernel(oriented, int(row));
  }
}

void Search::try_kernel(const OrientedProblem& oriented, int row) {
  const GemmConfig& config = kCatalog[row];
  const CandidateOperands& inputs = oriented.inputs;
  Plan plan;
  const auto fit = config.uses_tma() ? fit_sm90 : config.arch == Arch::sm90a ? fit_f64 : fit_sm80;
  if (!fit(config, oriented.problem, device_, inputs, plan)) return;
  plan.microseconds = with_memory(plan.microseconds, least_bytes_, device_);
  if (inputs.a.prepared || inputs.b.prepared) plan.microseconds += kPassLaunch;
  plan.config_index = row;
  plan.swap_ab = oriented.swap_ab;
  const auto copy = [&](const GemmOperand& operand, const CandidateOperand& input) {
    const RepackPass pass = repack_pass(operand);
    plan.microseconds += estimate_us(pass, input.reading, device_);
    return pass;
  };
  if (inputs.a.prepared) plan.repack_a = copy(oriented.a, inputs.a);
  if (inputs.b.prepared) plan.repack_b = copy(oriented.b, inputs.b);
  if (plan.microseconds < best.microseconds) best = plan;
}

}  // namespace tcgemm::plan
