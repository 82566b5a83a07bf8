// The choice: the cheapest kernel with its copies, or for f32 operands their products in parts.
#include "plan/planner.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "catalog.h"
#include "plan/plan_cache.h"
#include "plan/select_kernel.h"
#include "plan/split_fp32.h"

namespace tcgemm::plan {
namespace {

[[noreturn]] void refuse(const Problem& problem, const Device& device, std::string_view filter) {
  const Code code = code_on(device.compute_capability);
  const bool sparse = problem.sparse_a || problem.sparse_b;
  const std::string have = supported_products(code, sparse);
  std::string text = "tcgemm: no kernel of this build multiplies " +
                     types(problem.input_a, problem.input_b, problem.accumulator);
  if (sparse) text += ", one of them sparse,";
  if (problem.block_scaled()) text += " with scales of blocks";
  text += std::string(" on ") + device.name;
  if (code.capability == 0)
    throw std::runtime_error(text +
                             ", for which it has no code: build it with TORCH_CUDA_ARCH_LIST "
                             "naming that GPU, or run on the CPU.");
  text += std::string(", which runs this build's code for ") + name(code).text;
  if (!filter.empty()) text += ", under the filter '" + std::string(filter) + "'";
  text += "; there is " + (have.empty() ? "nothing" : have) + ".";
  if (sparse) throw std::runtime_error(text + " Convert it with to_dense(), or run on the CPU.");
  if (problem.input_a == DType::f32)
    text +=
        " precision=\"highest\" wants a GPU of compute capability 9.0; \"high\" multiplies f32 "
        "operands as tf32, and \"medium\" as bf16;";
  throw std::runtime_error(text +
                           " Cast the operands, or run on the CPU, which takes every dtype.");
}

double traffic(const Problem& problem) {
  const auto size = [&](const Matrix& matrix, std::int64_t rows, std::int64_t cols) {
    const auto extent = [](std::int64_t stride, std::int64_t size) {
      return stride == 0 ? 1.0 : double(size);
    };
    return extent(matrix.stride_row, rows) * extent(matrix.stride_col, cols) *
           extent(matrix.stride_batch, problem.batch) * bytes(matrix.dtype);
  };
  double total = size(problem.a, problem.m, problem.stored_k_a()) +
                 size(problem.b, problem.stored_k_b(), problem.n) +
                 double(problem.batch) * problem.m * problem.n * bytes(problem.out.dtype);
  const auto metadata = [&](std::int64_t rows, DType type) {
    return double(MetadataTiles{rows, problem.k, bits(type)}.bytes());
  };
  if (problem.sparse_a) total += metadata(problem.m, problem.input_a);
  if (problem.sparse_b) total += metadata(problem.n, problem.input_b);
  for (const auto& source : {problem.c, problem.bias, problem.residual})
    if (source) total += size(*source, problem.m, problem.n);
  return total;
}

Bound bound(const Problem& problem, const Plan& plan, const Device& device) {
  const double compute = compute_time(problem, plan, device);
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

// Passes for zero points: whichever kernel computes the product, they are the same.
void add_sums(const Problem& problem, const Device& device, Plan& plan) {
  const auto add = [&](const GemmOperand& operand, std::optional<SumPass>& pass) {
    pass = sum_pass(operand);
    plan.microseconds += kPassLaunch + estimate_us(*pass, analyze_layout(operand), device);
    plan.bytes += double(operand.k) * pass->rows * pass->batch * bytes(operand.matrix.dtype);
    pass->offset = carve_workspace(plan.workspace, workspace_bytes(*pass));
  };
  if (problem.zero_b) add(operand_a(problem), plan.sums_a);
  if (problem.zero_a) add(operand_b(problem), plan.sums_b);
}

Plan search(const Problem& asked, const Device& device, std::string_view filter) {
  // A column-major result is a row-major one of the transposed problem.
  const bool sparse = asked.sparse_a || asked.sparse_b;
  const bool column_major = asked.out.stride_col != 1 && asked.out.stride_row == 1 && asked.n > 1;
  // A kernel's a is the sparse operand; such kernels store either.
  const bool swap_ab = sparse ? asked.sparse_b.has_value() : column_major;
  const double least_bytes = traffic(asked);
  if (asked.empty()) {
    Plan nothing;
    nothing.swap_ab = swap_ab;
    nothing.bytes = least_bytes;
    return nothing;
  }
  Search search(device, filter, least_bytes);
  search.try_orientation(OrientedProblem(asked, swap_ab), false);
  const DType other_a = swap_ab ? asked.input_a : asked.input_b;
  if (!sparse && has_rs_kernel(other_a))
    search.try_orientation(OrientedProblem(asked, !swap_ab), true);
  Plan best = search.best;
  if (asked.input_a == DType::f32) {
    const Problem seen = swap_ab ? transposed(asked) : asked;
    // A filter may leave no other kernel, whatever the depth.
    const std::int64_t least_depth = search.found() ? kLeastDepth : 1;
    const std::optional<Plan> terms =
        plan_split_fp32(seen, device, filter, least_bytes, least_depth);
    if (terms && terms->microseconds < best.microseconds) {
      best = *terms;
      best.swap_ab = swap_ab;
    }
  }
  if (best.config_index < 0) refuse(asked, device, filter);
  const Problem problem = best.swap_ab ? transposed(asked) : asked;
  best.bytes = least_bytes;
  for (auto pass : {&best.repack_a, &best.repack_b}) {
    if (!*pass) continue;
    (*pass)->offset = carve_workspace(best.workspace, workspace_bytes(**pass));
    best.bytes += 2.0 * double(workspace_bytes(**pass));
  }
  add_sums(problem, device, best);
  best.bound = bound(problem, best, device);
  return best;
}

}  // namespace

Plan make_plan(const Problem& problem, const Device& device, std::string_view filter) {
  if (!filter.empty()) return search(problem, device, filter);
  return cached_plan(problem, device,
                     [](const Problem& asked, const Device& on) { return search(asked, on, {}); });
}

double compute_time(const Problem& problem, const Plan& plan, const Device& device) {
  DType input = problem.input_a;
  int products = 1;
  if (plan.split) {
    input = kCatalog[plan.config_index].input;
    products = split_product_count(kCatalog[plan.config_index].terms);
  } else if (input == DType::f32) {
    input = DType::f64;
  }
  const double skipped = problem.sparse_a || problem.sparse_b ? 0.5 : 1.0;
  return products * skipped * problem.flops() / rate(device, input) * 1e6;
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
