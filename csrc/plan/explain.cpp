// The text of explain and check_layout. Operands have the caller's names, also if A and B are
// swapped and the kernel's a is b^T.
#include "plan/explain.h"

#include <cmath>
#include <string>
#include <string_view>

#include "catalog.h"
#include "core/epilogue_path.h"
#include "core/split_fp32.h"
#include "plan/explain_text.h"
#include "plan/planner.h"
#include "plan/slices.h"
#include "plan/split_fp32.h"
#include "plan/tuned.h"

namespace tcgemm::plan {
namespace {

// One of the caller's operands with its passes and the way the kernel loads it.
struct ExplainedOperand {
  GemmOperand source;
  OperandLayout layout;
  const std::optional<RepackPass>* repack;
  const std::optional<SumPass>* sums;
  bool rs;           // transposed in registers
  bool elementwise;  // loaded one element at a time
  bool is_grouped;
  bool is_divided;  // into groups, along the dimension that is contiguous

  // Would an equal operand of a product without groups be read in place?
  bool is_readable() const {
    return layout.tma_readable() && !source.converts() &&
           !(source.k_major_only() && layout.major == Major::MN);
  }
};

struct ExplainedOperands {
  ExplainedOperand a, b;

  ExplainedOperands(const Problem& original, const Plan& plan)
      : a(explained(operand_a(multiplied(original, plan)), plan, !plan.swap_ab)),
        b(explained(operand_b(multiplied(original, plan)), plan, plan.swap_ab)) {
    set_groups(a, original.grouped, Axis::m);
    set_groups(b, original.grouped, Axis::n);
  }

 private:
  // `mn`: the dimension of the operand beside k.
  static void set_groups(ExplainedOperand& operand, Axis grouped, Axis mn) {
    operand.is_grouped = grouped != Axis::one;
    operand.is_divided = operand.is_grouped && !operand.layout.strided &&
                         grouped == (operand.layout.major == Major::K ? Axis::k : mn);
  }

  // `is_kernel_a`: the operand is the kernel's a.
  static ExplainedOperand explained(const GemmOperand& operand, const Plan& plan,
                                    bool is_kernel_a) {
    ExplainedOperand result{operand,
                            analyze_layout(operand),
                            is_kernel_a ? &plan.passes.repack_a : &plan.passes.repack_b,
                            is_kernel_a ? &plan.passes.sums_a : &plan.passes.sums_b,
                            false,
                            false,
                            false,
                            false};
    if (plan.main.config_index < 0) return result;
    const GemmConfig& config = kCatalog[plan.main.config_index];
    result.rs = is_kernel_a && config.mainloop == Mainloop::rs;
    result.elementwise = !plan.passes.split && !config.uses_tma() && operand.k > 0 &&
                         !(is_kernel_a ? plan.main.vector_a : plan.main.vector_b);
    return result;
  }
};

constexpr const char* kGroupsBegin = "groups begin anywhere along its contiguous dimension";

// The reason why the operand is copied.
std::string why_repacked(const ExplainedOperand& operand) {
  if (!operand.is_grouped || !operand.is_readable())
    return why_copied(operand.source, operand.layout);
  return operand.is_divided ? kGroupsBegin
                            : "grouped kernels read a and b both K-major or both MN-major";
}

// The reason why the operand, or its copy, is loaded one element at a time.
std::string why_elementwise(const ExplainedOperand& operand) {
  const bool is_aligned = operand.layout.tma_readable() || *operand.repack;
  if (operand.is_grouped && is_aligned) return kGroupsBegin;
  return why_copied(operand.source, operand.layout);
}

std::string faster(const ExplainedOperand& operand) {
  const bool in_place = !*operand.repack && !operand.elementwise;
  if (in_place || !operand.is_grouped) return advice(operand.source, operand.layout);
  if (operand.is_divided) return "another dimension contiguous, one that the groups do not divide";
  return operand.is_readable() ? "a and b both MN-major, as for the gradient of a weight"
                               : advice(operand.source, operand.layout);
}

std::string repack_lines(const ExplainedOperands& operands, const Device& device) {
  std::string lines;
  int copies = 0;
  for (const ExplainedOperand& operand : {operands.a, operands.b}) {
    if (!*operand.repack) continue;
    const RepackPass& pass = **operand.repack;
    ++copies;
    const double in = double(pass.batch) * double(pass.rows) * double(pass.k);
    lines += text(
        "  repack %c      copied K-major with a pitch of %lld elements because %s:\n"
        "                %s in, %s out, about %.1f us\n",
        operand.source.label, Long(pass.pitch), why_repacked(operand).c_str(),
        size(in * bits(pass.source.dtype) / 8).c_str(), size(double(workspace_bytes(pass))).c_str(),
        estimate_us(pass, operand.layout, device));
  }
  if (copies == 0) return "  repack        nothing is copied\n";
  return lines + text("                and %.1f us to launch %s\n", pass_launch_us(device),
                      copies == 2 ? "both at once" : "it");
}

std::string split_line(char label, const SplitFp32Pass& pass, const Device& device) {
  if (pass.prepared.terms != 0)
    return text("  split-FP32 %c  no pass: its %d %s terms are prepared\n", label,
                pass.prepared.terms, pass.prepared.terms == kF16Terms ? "f16" : "bf16");
  const double bytes = double(pass.batch) * double(pass.rows) * double(pass.k) * sizeof(float);
  return text("  split-FP32 %c  range statistics and f16 terms: %s in, %s out, about %.1f us\n",
              label, size(bytes).c_str(), size(bytes).c_str(), estimate_us(pass, device));
}

std::string recompute_line(const RecomputePlan& recompute, const char* what) {
  return text(
      "  recompute     %s: tiles with %s,\n"
      "                which the GPU marks in a mask; returns at once if there are none\n",
      name(kCatalog[recompute.kernel.config_index]).text, what);
}

// The passes and the other kernels of a split-FP32 plan.
std::string split_lines(const Plan& plan, const Device& device) {
  const SplitFp32Plan& split = *plan.passes.split;
  std::string lines = split_line('a', plan.swap_ab ? split.b : split.a, device) +
                      split_line('b', plan.swap_ab ? split.a : split.b, device);
  if (split.alternative.config_index >= 0)
    lines += text(
        "  alternative   %s, about %.1f us: the GPU selects it where rows of a\n"
        "                or columns of b have values that span more than 2^%d\n",
        name(kCatalog[split.alternative.config_index]).text, split.alternative.microseconds,
        kF16Spread);
  return lines +
         recompute_line(split.recompute, "Inf, NaN or results whose error bound is too large");
}

// What runs beside the kernel, for both kinds of plans.
std::string pass_lines(const Plan& plan, const ExplainedOperands& operands, const Device& device) {
  if (plan.passes.split) return split_lines(plan, device);
  std::string lines = repack_lines(operands, device);
  if (plan.passes.recompute)
    lines += recompute_line(*plan.passes.recompute, "results that are Inf or NaN");
  return lines;
}

std::string sum_lines(const ExplainedOperands& operands, const Device& device) {
  std::string lines;
  for (const ExplainedOperand& operand : {operands.a, operands.b}) {
    if (!*operand.sums) continue;
    lines += text("  sums          of %c along k, for %s: %.1f us\n", operand.source.label,
                  operand.source.input == DType::b1 ? "the operation"
                                                    : "the zero points of the other operand",
                  pass_launch_us(device) + estimate_us(**operand.sums, operand.layout, device));
  }
  return lines;
}

std::string slices_line(const Problem& problem, const Plan& plan) {
  const LaunchConfig& run = plan.main;
  if (run.slices == 1) return "";
  if (run.cluster_adds)
    return text("  slices of k   %d, whose sums the CTAs of a cluster add\n", run.slices);
  const std::string how_many =
      run.stream_k ? text("up to %d (stream-K: equal parts of all k-blocks)", run.slices)
                   : text("%d", run.slices);
  return text("  slices of k   %s, whose sums %s: %s of partial sums\n", how_many.c_str(),
              run.grid_adds ? "the CTAs add when all have stored theirs" : "another kernel adds",
              size(double(stored_sums_bytes(problem, run))).c_str());
}

std::string swap_ab_line(const Problem& original, const Plan& plan) {
  if (!plan.swap_ab) return "";
  const char* why = original.is_grouped() ? "kernels divide rows, and the groups are columns"
                    : original.has(Slot::sparse_b) ? "the 2:4 operand must be the kernel's A"
                    : original.has_packed_weight() ? "the packed weight must be the kernel's A"
                    : plan.passes.recompute ? "the operand with more rows must be the kernel's A"
                    : original[Slot::out].stride_col != 1 && original[Slot::out].stride_row == 1
                        ? "out is column-major"
                    : plan.main.store_path == StorePath::tma_columns
                        ? "its tiles fit out^T better, which the kernel stores by columns"
                        : "the operand that is transposed in registers must be the kernel's A";
  return text("  swap A/B      %s: out^T = b^T a^T is computed\n", why);
}

// How the kernel loads operands that it does not read in the usual way.
std::string load_lines(const ExplainedOperands& operands) {
  std::string lines;
  for (const ExplainedOperand& operand : {operands.a, operands.b}) {
    const char label = operand.source.label;
    if (operand.rs)
      lines += text(
          "  RS operand    %c is transposed in registers, for about %.0f %% of the GEMM's time: "
          "%s\n",
          label, 100 * kTransposeShare, why_copied(operand.source, operand.layout).c_str());
    if (operand.elementwise)
      lines += text("  scalar loads  %c is loaded one element at a time: %s\n", label,
                    why_elementwise(operand).c_str());
  }
  return lines;
}

std::string precision_line(const Problem& problem, const Plan& plan) {
  if (plan.passes.split)
    return text(
        "  precision     highest: operands split into %d %s terms, rows scaled by powers of two;\n"
        "                %d GEMMs of terms, accumulated in f32 every %d of k\n",
        kCatalog[plan.main.config_index].terms(), name(kCatalog[plan.main.config_index].input),
        split_product_count(kCatalog[plan.main.config_index].terms()),
        plan.passes.split->bf16 ? 32 : 64);
  const char* how = "";
  if (problem.input_a == DType::f32)
    how =
        plan.passes.recompute
            ? "highest: the kernel splits operands into 2 tf32 terms; 3 products of terms,\n"
              "                accumulated in f32 every 16 of k"
            : "highest: multiplied and accumulated in f64 by the tensor cores, rounded to f32 once";
  else if (problem.input_a == DType::tf32)
    how = "f32 operands are rounded to tf32, 10 bits of fraction, when they are loaded";
  else if (problem.input_a != problem[Slot::a].dtype)
    how = "f32 operands are rounded to bf16, 7 bits of fraction, by the repack pass";
  else if (multiplied(problem, plan).input_a != problem.input_a)
    how = "int4 operands are multiplied as s8, which the repack pass converts them to";
  else if (problem.promote)
    how = "promoted: partial sums over 128 of k are accumulated in f32 registers";
  else if (is_fp8(problem.input_a) && !problem.block_scaled())
    how = "fast: all sums stay in the tensor cores, which keep about 13 bits of fraction";
  return *how ? text("  precision     %s\n", how) : std::string();
}

// Microseconds that a kernel saves if it loads a constant b before the kernel before it has ended:
// medians on an H200 (docs/dev/kernels/few-rows.md).
double constant_b_time(const Problem& original, const Plan& plan) {
  const GemmConfig& config = kCatalog[plan.main.config_index];
  const Passes& passes = plan.passes;
  if (original.is_grouped() || config.arch != Arch::sm90a || config.mainloop == Mainloop::fp64 ||
      original.m > 64 || passes.repack_a || passes.repack_b || passes.split ||
      passes.recompute ||  // not measured
      original.has(Slot::sparse_a) ||
      original.has_packed_weight())  // whose order is loaded so already
    return 0;
  return config.is_gemv() ? 1.3 : original.m <= 16 ? 1.0 : 0.4;
}

std::string sparse_line(const Problem& original) {
  if (!original.is_sparse()) return "";
  const bool first = original.has(Slot::sparse_a);
  const DType type = first ? original.input_a : original.input_b;
  const std::int64_t rows = first ? original.m : original.n;
  const std::int64_t stored_k = first ? original.stored_k_a() : original.stored_k_b();
  const double dense = double(rows) * original.k * bits(type);
  const double bytes = double(rows) * stored_k * bits(type) / 8 +
                       double(MetadataTiles{rows, original.k, bits(type)}.bytes());
  return text("  sparse        %c: %s along k, %s of values and metadata (dense: %s)\n",
              first ? 'a' : 'b', name(pattern_of(type)), size(bytes).c_str(),
              size(dense / 8).c_str());
}

std::string packed_line(const Problem& original) {
  if (!original.has_packed_weight()) return "";
  const PackedLayout layout{original.n, original.k, original.packed};
  const std::string groups = original.packed.group_size == 0
                                 ? std::string("a scale for a row")
                                 : text("a scale for %d of k", int(original.packed.group_size));
  return text("  packed        b: %s, %s, %s (in %s: %s)\n", name(original.packed.format),
              groups.c_str(), size(double(layout.bytes())).c_str(), name(original.input_b),
              size(double(original.n) * original.k * bits(original.input_b) / 8).c_str());
}

const char* store(StorePath path, Axis grouped) {
  if (path == StorePath::elements && grouped == Axis::n)
    return "element by element: the rows of the kernel's result are columns of out";
  switch (path) {
    case StorePath::tma_rows: return "by TMA";
    case StorePath::tma_columns: return "by TMA, column-major";
    case StorePath::column_pairs: return "in pairs along columns";
    case StorePath::vectors: return "in vectors of up to 16 bytes";
    case StorePath::elements:
      return "element by element: rows of out are not a multiple of 16 bytes";
  }
  return "";
}

const char* tuned_line(const Plan& plan) {
  switch (plan.tuned) {
    case Tuned::nothing: return "";
    case Tuned::slices:
      return "  tuned         the slices of k alone: the tuned kernel does not compute this call\n";
    case Tuned::kernel: return "  tuned         kernel, cluster and slices of k, by tcgemm.tune\n";
  }
  return "";
}

std::string reason(const Problem& problem, const Plan& plan, const Device& device) {
  if (plan.tuned == Tuned::kernel) return "tcgemm.tune measured the shortest time with it";
  const GemmConfig& config = kCatalog[plan.main.config_index];
  const double tiles =
      double(plan.main.tiles_m) * double(plan.main.tiles_n) * double(problem.batch);
  const double whole = std::ceil(plan.main.waves);
  std::string why = text(
      "the lowest estimate, %.1f us, of the kernels that fit; the last of %.0f "
      "wave%s is %.0f %% full",
      plan.estimate.microseconds, whole, whole > 1 ? "s" : "",
      100 * (plan.main.waves > whole - 1 ? plan.main.waves - (whole - 1) : 1.0));
  if (config.arch != Arch::sm90a && device.compute_capability == 90) {
    const Code code = planned_code(90);
    if (!holds(code, Arch::sm90a))
      why += text("; this build's code for the GPU is %s's, without wgmma", name(code).text);
    else
      why += problem.k == 0 ? "; with K = 0 there is nothing for TMA to load"
                            : "; mma.sync costs less here than the copies that TMA would need";
  }
  if (config.arch == Arch::sm90a && tiles * plan.main.cluster.size() < device.multiprocessors / 2.0)
    why += "; the result is too small to fill the machine";
  return why;
}

}  // namespace

std::vector<Fact> facts(const Problem& original, const Plan& plan, const Device& device) {
  const Problem problem = plan.swap_ab ? transposed(original) : original;
  const GemmConfig& config = kCatalog[plan.main.config_index];
  const ExplainedOperands operands(original, plan);
  std::string copies;
  for (const ExplainedOperand& operand : {operands.a, operands.b})
    if (*operand.repack) copies += operand.source.label;
  return {{"config_index", plan.main.config_index},
          {"device", device.name},
          {"kernel", name(config).text},
          {"tuned", plan.tuned == Tuned::kernel},
          {"product", product_name(original)},
          {"layout", layout(original)},
          {"grouped", groups_name(original.grouped)},
          {"groups", original.is_grouped() ? int(original.batch) : 0},
          {"swap_ab", plan.swap_ab},
          {"copies", copies},
          {"tile", std::array{config.tile_m(), config.tile_n(), config.tile_k()}},
          {"stages", config.stages},
          {"threads", config.threads()},
          plan.main.cluster.n == 1 ? Fact{"cluster", plan.main.cluster.m}
                                   : Fact{"cluster", cluster_name(plan.main.cluster)},
          {"slices", plan.main.slices},
          {"cluster_adds", plan.main.cluster_adds},
          {"grid_adds", plan.main.grid_adds},
          {"stream_k", plan.main.stream_k},
          {"raster_group", plan.main.raster_group},
          {"grid", plan.main.grid},
          {"waves", plan.main.waves},
          {"workspace", plan.workspace},
          {"epilogue", epilogue(original)},
          {"store_path", name(plan.main.store_path)},
          {"flops", problem.flops()},
          {"bytes", plan.estimate.bytes},
          {"compute_microseconds", compute_time(problem, plan, device)},
          {"memory_microseconds", memory_time(plan, device)},
          {"microseconds", plan.estimate.microseconds},
          {"constant_microseconds", constant_b_time(original, plan)},
          {"bound", name(plan.estimate.bound)},
          {"why", reason(problem, plan, device)}};
}

std::string explain(const Problem& original, const Plan& plan, const Device& device) {
  std::string lines = text("tcgemm: out %s = a %s @ b %s, %s, on %s\n",
                           shape(original, Slot::out).c_str(), shape(original, Slot::a).c_str(),
                           shape(original, Slot::b).c_str(), types(original).c_str(), device.name);
  lines += text("  rates         %s\n", rates_source(device.source));
  if (plan.main.config_index < 0) return lines + "  kernel        none: the result is empty\n";
  const Problem problem = plan.swap_ab ? transposed(original) : original;
  const GemmConfig& config = kCatalog[plan.main.config_index];
  const ExplainedOperands operands(original, plan);
  lines += text("  kernel        %s (row %d of the catalog, %s epilogue)\n", name(config).text,
                plan.main.config_index, name(kernel_path(plan.main.epilogue_path)));
  lines += tuned_line(plan) + groups_line(original);
  lines += "  layout        " + layout(original) + "\n";
  lines += swap_ab_line(original, plan) + sparse_line(original) + packed_line(original) +
           precision_line(original, plan) + load_lines(operands);
  lines += pass_lines(plan, operands, device);
  lines += sum_lines(operands, device);
  lines += text("  tile          %d x %d x %d, %d stages of %s, %d threads\n", config.tile_m(),
                config.tile_n(), config.tile_k(), config.stages, size(config.stage_bytes()).c_str(),
                config.threads());
  lines += text("  cluster       %s\n", cluster_name(plan.main.cluster).c_str());
  lines += slices_line(problem, plan);
  lines += text("  grid          %d CTAs on %d multiprocessors, %.2f waves of tiles%s\n",
                plan.main.grid, device.multiprocessors, plan.main.waves,
                original.is_grouped() ? ", if groups have the mean length" : "");
  if (original.block_scaled())
    lines += "  scales        " + block_scales(original) + ", in the mainloop, every 128 of k\n";
  if (plan.workspace > 0)
    lines += text("  workspace     %s\n", size(double(plan.workspace)).c_str());
  lines += "  epilogue      " + epilogue(original) + "; stored " +
           store(plan.main.store_path, original.grouped) + "\n";
  lines +=
      text("  work          %.4g FLOP, %s of device memory, %.3g FLOP a byte\n", problem.flops(),
           size(plan.estimate.bytes).c_str(), problem.flops() / plan.estimate.bytes);
  lines += text("  bound         %s (compute %.2f us, memory %.2f us, estimate %.1f us)\n",
                name(plan.estimate.bound), compute_time(problem, plan, device),
                memory_time(plan, device), plan.estimate.microseconds);
  if (const double saved = constant_b_time(original, plan); saved > 0)
    lines += text("  constant b    constant_weights of a layer saves about %.1f us\n", saved);
  lines += "  why           " + reason(original, plan, device) + "\n";
  return lines;
}

std::string check_layout(const Problem& original, const Plan& plan, const Device& device) {
  std::string lines = text("tcgemm: layout of a %s @ b %s, %s, on %s: %s\n",
                           shape(original, Slot::a).c_str(), shape(original, Slot::b).c_str(),
                           types(original).c_str(), device.name, layout(original).c_str());
  lines += groups_line(original);
  const ExplainedOperands operands(original, plan);
  for (const ExplainedOperand& operand : {operands.a, operands.b}) {
    const OperandLayout& layout = operand.layout;
    lines += text("  %c   %s, leading dimension %lld, aligned to %d bytes\n", operand.source.label,
                  major(layout).c_str(), Long(layout.pitch), layout.alignment);
    lines += layout.tma_readable()
                 ? std::string("      TMA can read it\n")
                 : text("      TMA cannot read it: %s\n", describe(layout.obstacle));
    lines += text("      faster: %s\n", faster(operand).c_str());
    if (*operand.repack) lines += "      a repack pass copies it first\n";
    if (operand.rs) lines += "      the RS mainloop transposes it in registers\n";
    if (operand.elementwise) lines += "      it is loaded one element at a time\n";
  }
  if (plan.main.config_index < 0) return lines + "  kernel  none: the result is empty\n";
  const GemmConfig& config = kCatalog[plan.main.config_index];
  lines += text("  kernel family %s (%s)\n", kernel_family(config).c_str(), name(config).text);
  return lines + swap_ab_line(original, plan) + pass_lines(plan, operands, device) +
         sum_lines(operands, device);
}

}  // namespace tcgemm::plan
