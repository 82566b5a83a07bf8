// The choice: every kernel that fits, with every copy that helps, and the cheapest of them.
#include "plan/planner.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <stdexcept>

#include "catalog.h"
#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr std::size_t kAlignment = 256;  // of what lies in the workspace

// What a row computes, whatever its layout and tile, as one number.
constexpr std::uint32_t kind(DType a, DType b, DType accumulator, bool block_scaled,
                             bool promotes) {
  return std::uint32_t(a) | std::uint32_t(b) << 8 | std::uint32_t(accumulator) << 16 |
         std::uint32_t(block_scaled) << 24 | std::uint32_t(promotes) << 25;
}

// Of every row, or none that is asked for where this build lacks it. Comparing names takes
// microseconds, so it is done when this file is compiled.
constexpr std::uint32_t kNotBuilt = ~0u;
constexpr auto kKinds = [] {
  std::array<std::uint32_t, kCatalog.size()> kinds{};
  for (std::size_t i = 0; i < kCatalog.size(); ++i) {
    const Kernel& row = kCatalog[i];
    kinds[i] = built(row)
                   ? kind(row.input, row.input_b, row.accumulator, row.block_scaled, row.promotes())
                   : kNotBuilt;
  }
  return kinds;
}();

// Inputs that some kernel turns on their way to registers.
constexpr auto kTurned = [] {
  std::array<bool, kDTypes> flags{};
  for (const Kernel& row : kCatalog)
    if (row.source_of_a == SourceOfA::registers) flags[int(row.input)] = true;
  return flags;
}();

// The rows that compute what is asked: of one kind, or of two where sums need not be promoted,
// since promoted ones are better still.
struct Kinds {
  std::uint32_t plain = kNotBuilt, promoted;

  explicit Kinds(const Problem& problem) {
    // Without depth there is nothing to scale or to add up, and any kernel has the right zeros.
    const bool blocks = problem.k > 0 && problem.block_scaled();
    const auto with = [&](bool promotes) {
      return kind(problem.input_a, problem.input_b, problem.accumulator, blocks, promotes);
    };
    promoted = with(true);
    if (!blocks && !(problem.k > 0 && problem.promote)) plain = with(false);
  }

  bool hold(std::uint32_t row) const {
    return row == promoted || (row == plain && row != kNotBuilt);
  }
};

std::string types(DType a, DType b, DType accumulator) {
  const std::string operands = a == b ? name(a) : std::string(name(a)) + " by " + name(b);
  return operands + " (accumulator " + name(accumulator) + ")";
}

[[noreturn]] void refuse(const Problem& problem, const Device& device, std::string_view kernel) {
  const Code code = code_on(device.compute_capability);
  std::string have;
  for (std::size_t row = 0; row < kCatalog.size(); ++row) {
    const Kernel& other = kCatalog[row];
    const std::string words = types(other.input, other.input_b, other.accumulator);
    if (kKinds[row] != kNotBuilt && holds(code, other.arch) &&
        (", " + have + ",").find(", " + words + ",") == std::string::npos)
      have += (have.empty() ? "" : ", ") + words;
  }
  std::string text = "tcgemm: no kernel of this build multiplies " +
                     types(problem.input_a, problem.input_b, problem.accumulator);
  if (problem.block_scaled()) text += " with scales of blocks";
  text += std::string(" on ") + device.name;
  if (code.capability == 0)
    throw std::runtime_error(text +
                             ", for which it has no code: build it with TORCH_CUDA_ARCH_LIST "
                             "naming that GPU, or run on the CPU.");
  text += std::string(", which runs this build's code for ") + name(code).text;
  if (!kernel.empty()) text += ", under the filter '" + std::string(kernel) + "'";
  text += "; there is " + (have.empty() ? "nothing" : have) + ".";
  if (problem.input_a == DType::f32)
    text += " precision=\"high\" multiplies f32 operands as tf32, and \"medium\" as bf16;";
  throw std::runtime_error(text +
                           " Cast the operands, or run on the CPU, which takes every dtype.");
}

std::size_t place(std::size_t& offset, std::size_t bytes) {
  const std::size_t start = offset;
  offset += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return start;
}

double traffic(const Problem& problem) {
  const auto size = [&](const Matrix& matrix, std::int64_t rows, std::int64_t cols) {
    const auto extent = [](std::int64_t stride, std::int64_t size) {
      return stride == 0 ? 1.0 : double(size);
    };
    return extent(matrix.stride_row, rows) * extent(matrix.stride_col, cols) *
           extent(matrix.stride_batch, problem.batch) * bytes(matrix.dtype);
  };
  double total = size(problem.a, problem.m, problem.k) + size(problem.b, problem.k, problem.n) +
                 double(problem.batch) * problem.m * problem.n * bytes(problem.out.dtype);
  for (const auto& source : {problem.c, problem.bias, problem.residual})
    if (source) total += size(*source, problem.m, problem.n);
  return total;
}

// What the arithmetic is estimated to take, and no less than the bytes take. Where they bind, the
// kernel with less to do beside them is still the better one.
double with_memory(double microseconds, double bytes, const Device& device) {
  constexpr double kLaunch = 2.0;
  constexpr double kHidden = 0.05;
  const double floor = kLaunch + bytes / device.memory_rate * 1e6;
  return std::max(microseconds, floor) + kHidden * std::min(microseconds, floor);
}

Bound bound(const Problem& problem, const Plan& plan, const Device& device) {
  const double compute = problem.flops() / rate(device, problem.input_a) * 1e6;
  const double memory = plan.bytes / device.memory_rate * 1e6;
  if (std::max(compute, memory) < 3.0) return Bound::launch;
  return compute > memory ? Bound::compute : Bound::memory;
}

bool lower_equal(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

// A product seen from one of its two sides: which operand is the kernel's a is the planner's to
// choose.
struct Side {
  Problem problem;
  bool transposed;
  Operand a, b;
  Inputs inputs;
  bool may_copy_a, may_copy_b;

  Side(const Problem& asked, bool transposed)
      : problem(transposed ? tcgemm::transposed(asked) : asked),
        transposed(transposed),
        a(operand_a(problem)),
        b(operand_b(problem)),
        inputs{{read(a), a.converts() && problem.k > 0}, {read(b), b.converts() && problem.k > 0}},
        may_copy_a(may_copy(a, inputs.a)),
        may_copy_b(may_copy(b, inputs.b)) {}

  // A copy where it is not needed never pays; with K = 0 there is nothing to copy.
  static bool may_copy(const Operand& operand, const Input& input) {
    const Reading& reading = input.reading;
    const bool turn = k_major_only(operand.input) && reading.major == Major::MN && !reading.either;
    return operand.k > 0 && (!reading.direct() || input.converts || turn);
  }

  // Bits 0 and 1 of `choice`: copy a, copy b. False: there is no such choice.
  bool choose(int choice) {
    inputs.a.prepared = choice & 1;
    inputs.b.prepared = choice & 2;
    return (!inputs.a.prepared || may_copy_a) && (!inputs.b.prepared || may_copy_b);
  }
};

// Finds the cheapest plan over all candidates.
class Search {
 public:
  Search(const Device& device, std::string_view filter, double least_bytes)
      : device_(device),
        code_(code_on(device.compute_capability)),
        filter_(filter),
        least_bytes_(least_bytes) {
    best.microseconds = HUGE_VAL;
  }

  // `turning`: with kernels alone that turn an operand on its way to registers. They store a
  // column-major result as fast as a row-major one, and no other kernel does.
  void try_side(Side side, bool turning) {
    const Kinds kinds(side.problem);
    for (std::size_t row = 0; row < kCatalog.size(); ++row) {
      if (!kinds.hold(kKinds[row])) continue;
      const Kernel& kernel = kCatalog[row];
      if (!holds(code_, kernel.arch)) continue;
      if (turning && kernel.source_of_a != SourceOfA::registers) continue;
      if (!filter_.empty() && !matches(name(kernel), filter_)) continue;
      for (int choice = 0; choice < 4; ++choice)
        if (side.choose(choice)) try_kernel(side, int(row));
    }
  }

  Plan best;

 private:
  void try_kernel(const Side& side, int row) {
    const Kernel& kernel = kCatalog[row];
    const Inputs& inputs = side.inputs;
    Plan plan;
    const auto fit = kernel.uses_tma() ? fit_sm90 : kernel.input == DType::f64 ? fit_f64 : fit_sm80;
    if (!fit(kernel, side.problem, device_, inputs, plan)) return;
    plan.microseconds = with_memory(plan.microseconds, least_bytes_, device_);
    if (inputs.a.prepared || inputs.b.prepared) plan.microseconds += kPassLaunch;
    plan.kernel = row;
    plan.transposed = side.transposed;
    if (inputs.a.prepared) plan.prepare_a = add_copy(side.a, inputs.a, plan);
    if (inputs.b.prepared) plan.prepare_b = add_copy(side.b, inputs.b, plan);
    if (plan.microseconds < best.microseconds) best = plan;
  }

  Prepare add_copy(const Operand& operand, const Input& input, Plan& plan) const {
    const Prepare pass = prepare(operand);
    plan.microseconds += cost(pass, input.reading, device_);
    return pass;
  }

  const Device& device_;
  const Code code_;
  const std::string_view filter_;
  const double least_bytes_;
};

// Passes for zero points: whichever kernel computes the product, they are the same.
void add_sums(const Problem& problem, const Device& device, Plan& plan) {
  const auto add = [&](const Operand& operand, std::optional<Sums>& pass) {
    pass = sums(operand);
    plan.microseconds += kPassLaunch + cost(*pass, read(operand), device);
    plan.bytes += double(operand.k) * pass->rows * pass->batch * bytes(operand.matrix.dtype);
    pass->offset = place(plan.workspace, bytes(*pass));
  };
  if (problem.zero_b) add(operand_a(problem), plan.sums_a);
  if (problem.zero_a) add(operand_b(problem), plan.sums_b);
}

}  // namespace

Plan make_plan(const Problem& asked, const Device& device, std::string_view filter) {
  // A column-major result is a row-major one of the transposed problem.
  const bool flip = asked.out.stride_col != 1 && asked.out.stride_row == 1 && asked.n > 1;
  const double least_bytes = traffic(asked);
  if (asked.empty()) {
    Plan nothing;
    nothing.transposed = flip;
    nothing.bytes = least_bytes;
    return nothing;
  }
  Search search(device, filter, least_bytes);
  search.try_side(Side(asked, flip), false);
  const DType other_a = flip ? asked.input_a : asked.input_b;
  if (kTurned[int(other_a)]) search.try_side(Side(asked, !flip), true);
  if (search.best.kernel < 0) refuse(asked, device, filter);

  Plan best = search.best;
  const Problem problem = best.transposed ? transposed(asked) : asked;
  best.bytes = least_bytes;
  for (auto pass : {&best.prepare_a, &best.prepare_b}) {
    if (!*pass) continue;
    (*pass)->offset = place(best.workspace, bytes(**pass));
    best.bytes += 2.0 * double(bytes(**pass));
  }
  add_sums(problem, device, best);
  best.bound = bound(problem, best, device);
  return best;
}

const Device* find_device(std::string_view name) {
  for (const Device& device : kDevices)
    if (lower_equal(device.name, name)) return &device;
  return nullptr;
}

std::string device_names() {
  std::string names;
  for (const Device& device : kDevices)
    names += (names.empty() ? "" : ", ") + std::string(device.name);
  return names;
}

}  // namespace tcgemm::plan
