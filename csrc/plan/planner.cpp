// The choice: the cheapest kernel with its repack passes, or for f32 operands a split-FP32 plan.
#include "plan/planner.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <stdexcept>

#include "catalog.h"
#include "plan/explain_text.h"
#include "plan/grouped.h"
#include "plan/orientations.h"
#include "plan/plan_cache.h"
#include "plan/select_kernel.h"
#include "plan/slices.h"
#include "plan/split_fp32.h"
#include "plan/tf32x2.h"
#include "plan/tuned.h"

namespace tcgemm::plan {
namespace {

// There is no kernel under the filter. Says so where its cluster is the reason: `fits` tells
// whether there is one under the filter without the cluster.
template <class Fits>
void check_cluster(std::string_view filter, const Fits& fits) {
  const std::string_view asked = cluster_text(filter);
  if (asked.empty()) return;
  const std::string text = "tcgemm: kernel='" + std::string(filter) + "' asks for a cluster of " +
                           std::string(asked) + " CTAs, but ";
  const char* const advice = "; write another one after the '@', or none.";
  if (!cluster_of(asked)) {
    std::string names;
    for (const auto& [shape, searched] : kClusters)
      names += (names.empty() ? "" : ", ") + cluster_name(shape);
    throw std::runtime_error(text + "there are clusters of " + names + advice);
  }
  std::string whole(filter);
  whole.erase(whole.rfind('@'), asked.size() + 1);
  if (fits(whole))
    throw std::runtime_error(
        text +
        "no kernel under that filter has it: CTAs share both operands, or are eight, in kernels of "
        "sm90a with dense operands whose tensor cores read both from shared memory; the other "
        "kernels with TMA have 1, 2 and 4, and a cluster that adds slices of k shares nothing" +
        advice);
}

[[noreturn]] void throw_unsupported(const Problem& problem, const Device& device,
                                    std::string_view filter) {
  const Code code = planned_code(device.compute_capability);
  const bool is_sparse = problem.is_sparse();
  const std::string supported = supported_products(code, is_sparse, problem.is_grouped());
  std::string text = "tcgemm: no kernel of this build multiplies " +
                     types(problem.input_a, problem.input_b, problem.accumulator);
  if (is_sparse) text += ", one of them sparse,";
  if (problem.block_scaled()) text += " with scales of blocks";
  if (problem.is_grouped()) text += " in groups";
  text += std::string(" on ") + device.name;
  if (code.capability == 0)
    throw std::runtime_error(text +
                             ", for which it has no code: build it with TORCH_CUDA_ARCH_LIST "
                             "naming that GPU, or run on the CPU.");
  text += std::string(", which runs this build's code for ") + name(code).text;
  if (!filter.empty()) text += ", under the filter '" + std::string(filter) + "'";
  text += "; there is " + (supported.empty() ? "nothing" : supported) + ".";
  if (is_sparse) throw std::runtime_error(text + " Convert it with to_dense(), or run on the CPU.");
  if (problem.input_a == DType::f32)
    text +=
        " precision=\"highest\" wants a GPU of compute capability 9.0; \"high\" multiplies f32 "
        "operands as tf32, and \"medium\" as bf16.";
  throw std::runtime_error(text +
                           " Cast the operands, or run on the CPU, which takes every dtype.");
}

Bound bound(const Problem& problem, const Plan& plan, const Device& device) {
  const double compute = compute_time(problem, plan, device);
  const double memory = memory_time(plan, device);
  if (std::max(compute, memory) < 3.0) return Bound::launch;
  return compute > memory ? Bound::compute : Bound::memory;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

// Adds the passes for zero points and for operations of b1, which do not depend on the kernel.
void add_sums(const Problem& problem, const Device& device, Plan& plan) {
  const BinaryFactors binary = factors(problem.binary);
  const auto add = [&](const GemmOperand& operand, std::optional<SumPass>& pass) {
    pass = sum_pass(operand);
    if (problem.adds_ones()) pass->factor = binary.ones;
    plan.estimate.microseconds +=
        pass_launch_us(device) + estimate_us(*pass, analyze_layout(operand), device);
    plan.estimate.bytes +=
        double(bytes_of(operand.k, operand.matrix.dtype)) * pass->rows * pass->batch;
    pass->offset = carve_workspace(plan.workspace, workspace_bytes(*pass));
  };
  if (problem.has(Slot::zero_b) || problem.adds_ones()) add(operand_a(problem), plan.passes.sums_a);
  if (problem.has(Slot::zero_a) || problem.adds_ones()) add(operand_b(problem), plan.passes.sums_b);
  if (problem.adds_ones()) plan.passes.sums_a->addend = binary.all * std::int32_t(problem.k);
}

// Throws where the filter asks for an orientation that the product, or the kernel, does not have.
void check_orientation(const Problem& problem, std::string_view filter) {
  const std::string text = "tcgemm: kernel='" + std::string(filter) + "' ";
  if (filter.ends_with(kSwapped)) {
    const char* const why =
        problem.is_sparse() ? "a sparse operand is always the A of a kernel"
        : problem.has_packed_weight()
            ? "a packed weight is always the A of a kernel, or the B of a GEMV kernel"
        : problem.input_a == DType::f32
            ? "the terms of float32 operands are added in the order of the operands"
            : nullptr;
    if (why)
      throw std::runtime_error(text + "asks for the other orientation, but " + why +
                               "; leave '^T' away.");
  }
  if (names_columns_only(filter, problem.input_a))
    throw std::runtime_error(
        text +
        "names a kernel that stores its result by columns alone, which does not fit here: it "
        "runs on compute capability 9.0, with one slice of k, without zero points, with c or "
        "residual but not both, and its rows of out are contiguous, of multiples of 16 bytes, and "
        "have 16 or 8 bits an element (float32 operands: float32); name another kernel, or none.");
}

// The product without its epilogue, with a row-major result of the accumulators' type. The division
// of k is chosen for it, so that no bit depends on the rest.
Problem plain_product(const Problem& problem) {
  return partial_sums(problem, 1, row_major_result(problem, partial_sums_dtype(problem)));
}

// The same with a result that kernels with EpiloguePath::columns can store, if there are any.
Problem narrow_product(const Problem& problem) {
  Problem narrow = plain_product(problem);
  const int width = bits(problem.input_a);
  if (!may_gain_from_swap(problem.input_a) || width > 16) return narrow;
  Matrix& out = narrow[Slot::out];
  out = row_major_result(narrow, width == 16 ? problem.input_a : DType::bf16);
  return narrow;
}

// Would the planner find the same for both? `plain` has a row-major result that TMA can write.
bool is_planned_alike(Problem problem, const Problem& plain) {
  Matrix& out = problem[Slot::out];
  out.address %= kVectorBytes;
  if (problem.batch == 1) out.stride_batch = plain[Slot::out].stride_batch;
  return problem == plain;
}

// A division of k, and the kernel that was found with it, if that was looked for.
struct Divided {
  Division division;
  Candidate kernel;
};

// The division of k of a product, for any epilogue and layout of the result. The kernel is that of
// the product if it has no epilogue.
Divided divide_k(const Problem& problem, const Device& device) {
  const Problem plain = narrow_product(problem);
  Orientations kernels(plain, device, {});
  Candidate fastest;
  fastest.launch.microseconds = HUGE_VAL;
  // The least time, if it is below `most`: then it is the least one so far.
  const auto time = [&](Division division, double most = HUGE_VAL) {
    const Candidate found = kernels.cheapest(division, most);
    if (found.found()) fastest = found;
    return found.launch.microseconds;
  };
  const auto divided = [&](Division division) {
    return Divided{division, is_planned_alike(problem, plain) ? fastest : Candidate{}};
  };
  Division whole;
  if (problem.batch_invariant) {
    const Division division{invariant_slices(problem)};
    if (division.slices > 1) time(division);
    return fastest.found() ? divided(division) : Divided{whole, {}};
  }
  double least = time(whole);
  if (may_be_gemv(problem)) {
    for (const int cluster : {1, 2, 4}) {
      const Division gemv{1, false, cluster};
      const double microseconds = time(gemv, least);
      if (microseconds >= least) continue;
      least = microseconds;
      whole = gemv;
    }
  }
  if (const Division thin{.thin = true}; may_be_thin(problem)) {
    const double microseconds = time(thin, least);
    if (microseconds < least) whole = thin;
    least = std::min(least, microseconds);
  }
  const Division best = fastest_division(whole, least, SliceCounts(problem, device), false, time);
  // Without a packed weight stream-K has two kernels, which multiply by two factors in different
  // orders.
  const bool keeps_bits = problem.has_packed_weight() || !swap_ab_changes_bits(problem);
  const double without = fastest.launch.microseconds;
  const bool streams =
      may_stream(problem, device) && keeps_bits && time(kStreamKDivision, without) < without;
  return streams ? Divided{kStreamKDivision, {}} : divided(best);
}

// The kernel that a filter names for a row-major result, for the result of the problem.
std::string for_result(const Problem& problem, const std::string& filter) {
  if (!is_column_major(problem) || problem.has_packed_weight()) return filter;
  return filter.ends_with(kSwapped) ? std::string(without_orientation(filter))
                                    : filter + std::string(kSwapped);
}

// The kernel of a product that stream-K divides. Its tiles and clusters decide where each tile is
// divided, so that one kernel computes the product with any epilogue and layout of the result.
std::string stream_kernel(const Problem& problem, const Device& device) {
  const Candidate best = cheapest(narrow_product(problem), device, {}, kStreamKDivision);
  const std::string kernel = std::string(name(kCatalog[best.launch.config_index])) + "@" +
                             cluster_name(best.launch.cluster) + "/" + std::string(kStreamK);
  // A packed weight is in one place, which no name says.
  const bool says_swapped = best.swap_ab && !problem.has_packed_weight();
  return for_result(problem, says_swapped ? kernel + std::string(kSwapped) : kernel);
}

// The choice of tcgemm.tune for the product, if its kernel computes the product.
std::optional<std::string> fitting_choice(const Problem& problem, const Device& device) {
  if (problem.batch_invariant) return std::nullopt;
  std::optional<std::string> choice = find_tuned(problem, device);
  if (!choice) return choice;
  // Kernels that store by columns have no f32 sums of 16-bit and 8-bit operands as a result.
  const Problem plain = plain_product(problem);
  const bool fits = cheapest(plain, device, *choice, {}).found() ||
                    cheapest(narrow_product(problem), device, *choice, {}).stores_by_columns();
  return fits ? choice : std::nullopt;
}

// The kernel of the choice, else the cheapest one that divides k alike; neither may exist.
Candidate tuned_candidate(const Problem& original, const Device& device, const std::string& choice,
                          Tuned& tuned) {
  Division division = division_of(choice);
  if (division.stream_k) {
    tuned = Tuned::kernel;
    return cheapest(original, device, for_result(original, choice), {});
  }
  // The choice was measured with a row-major result; a 2:4 kernel stores both majors alike.
  if (original.is_sparse() || original.has_packed_weight() || !is_column_major(original)) {
    const Candidate chosen = cheapest(original, device, choice, {});
    if (choice.ends_with(kSwapped) ? chosen.stores_by_columns() : chosen.found()) {
      tuned = Tuned::kernel;
      return chosen;
    }
  }
  division.cluster_adds = false;  // cheapest() tries both ways to add
  const Candidate found = cheapest(original, device, {}, division);
  if (found.found()) tuned = Tuned::slices;
  return found;
}

// Is the product one that split FP32 may compute, in the orientation that the filter asks for?
bool may_split(const Problem& problem, std::string_view filter) {
  return problem.input_a == DType::f32 && !filter.ends_with(kSwapped) &&
         !(problem.batch_invariant && filter.empty());
}

// The kernels of a product without groups. There may be none.
Plan choose_kernels(const Problem& original, const Device& device, std::string_view filter,
                    double least_bytes) {
  const bool swap_ab = swaps_ab(original, filter);
  Plan plan;
  Candidate candidate;
  if (filter.empty())
    if (const auto choice = fitting_choice(original, device))
      candidate = tuned_candidate(original, device, *choice, plan.tuned);
  if (plan.tuned == Tuned::nothing) {
    const Divided divided = filter.empty() ? divide_k(original, device) : Divided{};
    candidate = divided.kernel.found() ? divided.kernel
                : divided.division.stream_k
                    ? cheapest(original, device, stream_kernel(original, device), {})
                    : cheapest(original, device, filter, divided.division);
  }
  plan.main = candidate.launch;
  plan.swap_ab = candidate.swap_ab;
  plan.passes.repack_a = candidate.repack_a;
  plan.passes.repack_b = candidate.repack_b;
  plan.estimate.microseconds = candidate.launch.microseconds;
  if (may_split(original, filter)) {
    const Problem oriented = swap_ab ? transposed(original) : original;
    // A filter may leave only split-FP32 kernels, at any depth.
    const std::int64_t least_depth = candidate.launch.config_index >= 0 ? kLeastDepth : 1;
    const std::optional<Plan> split =
        plan_split_fp32(oriented, device, filter, least_bytes, least_depth);
    double microseconds = split ? split->estimate.microseconds : HUGE_VAL;
    if (split && original.as_prepared) microseconds -= estimate_us(split->passes.split->b, device);
    double least = plan.estimate.microseconds;
    if (microseconds < least) {
      plan = *split;
      plan.swap_ab = swap_ab;
      least = microseconds;
    }
    const std::optional<Plan> tf32x2 =
        plan_tf32x2(original, device, filter, least_bytes, least_depth, least);
    if (tf32x2) plan = *tf32x2;
  }
  return plan;
}

Plan search(const Problem& original, const Device& device, std::string_view filter) {
  const double least_bytes = traffic(original.is_grouped() ? mean_groups(original) : original);
  if (original.empty()) {
    Plan empty;
    empty.swap_ab = swaps_ab(original, filter);
    empty.estimate.bytes = least_bytes;
    return empty;
  }
  Plan plan = original.is_grouped() ? plan_grouped(original, device, filter, least_bytes)
                                    : choose_kernels(original, device, filter, least_bytes);
  if (plan.main.config_index < 0 && original.is_grouped())
    throw_unsupported(original, device, filter);
  if (plan.main.config_index < 0) {
    check_cluster(filter, [&](std::string_view whole) {
      return cheapest(original, device, whole, {}).found() ||
             (may_split(original, whole) &&
              (plan_split_fp32(original, device, whole, least_bytes, 1) ||
               plan_tf32x2(original, device, whole, least_bytes, 1, HUGE_VAL)));
    });
    check_orientation(original, filter);
    throw_unsupported(original, device, filter);
  }
  const Problem problem = plan.swap_ab ? transposed(original) : original;
  plan.estimate.bytes = least_bytes;
  for (auto pass : {&plan.passes.repack_a, &plan.passes.repack_b}) {
    if (!*pass) continue;
    (*pass)->offset = carve_workspace(plan.workspace, workspace_bytes(**pass));
    plan.estimate.bytes += 2.0 * double(workspace_bytes(**pass));
  }
  add_sums(problem, device, plan);
  if (plan.stored_slices() > 1)
    plan.partial_sums = carve_workspace(plan.workspace, stored_sums_bytes(problem, plan.main));
  plan.estimate.bound = bound(problem, plan, device);
  return plan;
}

}  // namespace

bool copies_result(const Problem& problem, std::string_view kernel) {
  const bool has_rows = problem[Slot::out].stride_col == 1 || problem.n == 1;
  return !has_rows && !problem.is_grouped() && !problem.is_sparse() &&
         !problem.has_packed_weight() && !may_swap_ab(problem, kernel);
}

Plan make_plan(const Problem& problem, const Device& device, std::string_view filter) {
  if (!filter.empty()) return search(problem, device, filter);
  return cached_plan(problem, device, [](const Problem& original, const Device& on) {
    return search(original, on, {});
  });
}

Problem multiplied(const Problem& problem, const Plan& plan) {
  const bool converts = is_int4(problem.input_a) && plan.main.config_index >= 0 &&
                        kCatalog[plan.main.config_index].input == DType::s8;
  return converts ? with_s8_inputs(problem) : problem;
}

double memory_time(const Plan& plan, const Device& device) {
  return plan.estimate.bytes / device.memory_rate * 1e6;
}

double compute_time(const Problem& problem, const Plan& plan, const Device& device) {
  DType input = multiplied(problem, plan).input_a;
  int gemms = 1;
  if (plan.passes.split) {
    input = kCatalog[plan.main.config_index].input;
    gemms = split_product_count(kCatalog[plan.main.config_index].terms());
  } else if (plan.passes.recompute) {
    input = DType::tf32;
    gemms = split_product_count(kTf32Terms);
  } else if (input == DType::f32) {
    input = DType::f64;
  }
  const double mma_share = problem.is_sparse() ? 0.5 : 1.0;
  return gemms * mma_share * problem.flops() / rate(device, input) * 1e6;
}

const Device* find_device(std::string_view name) {
  for (const KnownDevice& entry : kKnownDevices)
    if (equals_ignoring_case(entry.device.name, name)) return &entry.device;
  return nullptr;
}

std::string device_names() {
  std::string names;
  for (const KnownDevice& entry : kKnownDevices)
    names += (names.empty() ? "" : ", ") + std::string(entry.device.name);
  return names;
}

}  // namespace tcgemm::plan
