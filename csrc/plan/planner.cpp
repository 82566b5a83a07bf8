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

constexpr std::size_t kCopyAlignment = 256;

// Comparing names takes microseconds, so it is done when this file is compiled.
constexpr auto kBuilt = [] {
  std::array<bool, kCatalog.size()> flags{};
  for (std::size_t row = 0; row < kCatalog.size(); ++row) flags[row] = built(kCatalog[row]);
  return flags;
}();

[[noreturn]] void refuse(const Problem& problem, const Device& device, std::string_view kernel) {
  std::string have;
  for (const Kernel& row : kCatalog) {
    const std::string types =
        std::string(name(row.input)) + " (accumulator " + name(row.accumulator) + ")";
    if (built(row) && holds(code_on(device.compute_capability), row.arch) &&
        have.find(types) == std::string::npos)
      have += (have.empty() ? "" : ", ") + types;
  }
  throw std::runtime_error(
      "tcgemm: no kernel of this build multiplies " + std::string(name(problem.a.dtype)) +
      " with an accumulator of " + name(problem.accumulator) + " on " + device.name +
      (kernel.empty() ? "" : " under the filter '" + std::string(kernel) + "'") + "; there is " +
      (have.empty() ? "none for this GPU: build with TORCH_CUDA_ARCH_LIST naming it" : have) +
      ". Cast the operands, or run on the CPU, which also takes f32 and f64.");
}

std::size_t place(Prepare& pass, std::size_t offset) {
  pass.offset = offset;
  return offset + (bytes(pass) + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
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
  const double compute = problem.flops() / device.tensor_rate * 1e6;
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

}  // namespace

Plan make_plan(const Problem& asked, const Device& device, std::string_view filter) {
  Plan best;
  // A column-major result is a row-major one of the transposed problem.
  const bool flip = asked.out.stride_col != 1 && asked.out.stride_row == 1 && asked.n > 1;
  const Problem problem = flip ? transposed(asked) : asked;
  const double least_bytes = traffic(problem);
  best.transposed = flip;
  best.bytes = least_bytes;
  if (problem.empty()) return best;

  const Operand a = operand_a(problem), b = operand_b(problem);
  const Prepare copy_a = prepare(a), copy_b = prepare(b);
  Inputs inputs{read(a), read(b)};
  const double cost_a = cost(copy_a, inputs.a, device), cost_b = cost(copy_b, inputs.b, device);
  // A copy where it is not needed never pays; with K = 0 there is nothing to copy.
  const bool may_copy_a = !inputs.a.direct() && problem.k > 0;
  const bool may_copy_b = !inputs.b.direct() && problem.k > 0;

  best.microseconds = HUGE_VAL;
  for (int choice = 0; choice < 4; ++choice) {
    inputs.prepare_a = choice & 1;
    inputs.prepare_b = choice & 2;
    if ((inputs.prepare_a && !may_copy_a) || (inputs.prepare_b && !may_copy_b)) continue;
    const double copies = (inputs.prepare_a ? cost_a : 0) + (inputs.prepare_b ? cost_b : 0);
    for (std::size_t row = 0; row < kCatalog.size(); ++row) {
      const Kernel& kernel = kCatalog[row];
      if (kernel.input != problem.a.dtype || kernel.accumulator != problem.accumulator) continue;
      if (!kBuilt[row] || !holds(code_on(device.compute_capability), kernel.arch)) continue;
      if (!filter.empty() && !matches(name(kernel), filter)) continue;
      Plan plan;
      const auto fit = kernel.arch == Arch::sm90a ? fit_sm90 : fit_sm80;
      if (!fit(kernel, problem, device, inputs, plan)) continue;
      plan.microseconds = with_memory(plan.microseconds, least_bytes, device) + copies;
      if (plan.microseconds >= best.microseconds) continue;
      plan.kernel = int(row);
      plan.transposed = flip;
      if (inputs.prepare_a) plan.prepare_a = copy_a;
      if (inputs.prepare_b) plan.prepare_b = copy_b;
      best = plan;
    }
  }
  if (best.kernel < 0) refuse(problem, device, filter);

  if (best.prepare_a) best.workspace = place(*best.prepare_a, best.workspace);
  if (best.prepare_b) best.workspace = place(*best.prepare_b, best.workspace);
  best.bytes = least_bytes;
  for (const auto& pass : {best.prepare_a, best.prepare_b})
    if (pass) best.bytes += 2.0 * double(bytes(*pass));
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
