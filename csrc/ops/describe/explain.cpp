// explain and check_layout describe what a GPU would do with a call, by the checks and the planner
// of the call: Arguments -> Problem -> Plan -> text. Nothing is computed, and no tensor is
// allocated.
#include <optional>
#include <string>
#include <string_view>

#include "catalog.h"
#include "core/plan.h"
#include "ops/arguments.h"
#include "ops/check/check.h"
#include "ops/json.h"
#include "ops/operators.h"
#include "ops/product/batch.h"
#include "ops/product/strips.h"
#include "plan/explain.h"
#include "plan/planner.h"

namespace tcgemm::ops {
namespace {

constexpr const char* kDefaultDevice = "H200";

const Device& choose_device(const Call& call, const Arguments& arguments) {
  if (!arguments.device && call.backend.device_of)
    if (const Device* device = call.backend.device_of(arguments)) return *device;
  const std::string& requested = arguments.device ? *arguments.device : kDefaultDevice;
  const Device* device = plan::find_device(requested);
  if (!device)
    fail(name(call.op), ": device is \"", requested, "\", but the known GPUs are ",
         plan::device_names(), "; pass one of these names, or None for the GPU of the tensors.");
  return *device;
}

// Sets operand `out` to the result that a call would allocate, but without memory.
void bind_unallocated_out(CheckedGemm& checked, std::int64_t* strides) {
  contiguous_strides(checked.shape(), strides);
  CheckedOperand& out = checked[Slot::out];
  out.view = checked[Slot::a].view;
  out.view.sizes = checked.sizes;
  out.view.strides = strides;
  out.view.dims = checked.dims;
  out.view.dtype = checked.out_dtype;
  out.view.address = 0;
  bind_matrix_dims(out, checked.shows_rows, checked.shows_cols);
}

// The lines that the planner cannot write: how batch dimensions merge, and what a CPU call does.
std::string batch_and_device_lines(const CheckedGemm& checked, const BatchedProblem& batched,
                                   const Device& device, bool copied) {
  std::string text;
  if (copied)
    text +=
        "\n  copied        out has no contiguous rows: a row-major result is computed and copied, "
        "since its transpose would have other bits";
  if (batched.problem.m != checked.m)
    text += join("\n  batch         b serves every batch: the batch dimensions and the ", checked.m,
                 " rows of a are one dimension of ", batched.problem.m, " rows");
  if (batched.count() > 1)
    text += join("\n  batch         the strides of the batch dimensions ",
                 Shape{checked.batch, checked.batch_dims}, " do not merge, so ", batched.count(),
                 " products like this run one after another; contiguous operands would be one");
  if (is_cpu(checked[Slot::a].view))
    text += join("\nThese tensors are on the CPU, where the CPU implementation runs; ",
                 "the above is what one ", device.name, " would do.");
  return text;
}

// The line for a product whose sums of slices do not fit one workspace; `first` is the first strip.
std::string strips_line(const Strips& strips, const Problem& first) {
  return join("\n  strips        the sums of the slices of all rows would take more than ",
              Strips::kMostSumsBytes >> 20, " MB, so ", strips.count(), " products of up to ",
              first.batch * first.m, " rows run one after another");
}

// What the passes of an operand share.
JsonObject shape(const auto& pass) {
  return JsonObject().add("rows", pass.rows).add("k", pass.k).add("batch", pass.batch);
}

JsonObject describe(const RepackPass& pass) {
  return shape(pass).add("pitch", pass.pitch).add("offset", pass.offset).add("to", name(pass.to));
}

JsonObject describe(const SumPass& pass) { return shape(pass).add("offset", pass.offset); }

JsonObject describe(const SplitFp32Pass& pass) {
  return shape(pass)
      .add("mn_major", pass.mn_major)
      .add("pitch", pass.pitch)
      .add("offset", pass.offset)
      .add("prepared_terms", pass.prepared.terms);
}

std::optional<JsonObject> describe(const LaunchConfig& launch) {
  if (launch.config_index < 0) return std::nullopt;
  return JsonObject()
      .add("kernel", std::string_view(name(kCatalog[launch.config_index])))
      .add("cluster", launch.cluster.m)
      .add("grid", launch.grid)
      .add("raster_group", launch.raster_group)
      .add("tiles_m", launch.tiles_m)
      .add("tiles_n", launch.tiles_n);
}

JsonObject describe(const RecomputePlan& recompute) {
  return describe(recompute.kernel)
      ->add("mask", recompute.mask)
      .add("mask_bytes", recompute.mask_bytes);
}

JsonObject describe(const SplitFp32Plan& split) {
  return JsonObject()
      .add("a", describe(split.a))
      .add("b", describe(split.b))
      .add("bf16", split.bf16)
      .add("alternative", describe(split.alternative))
      .add("recompute", describe(split.recompute))
      .add("decision", split.decision);
}

template <class T>
std::optional<JsonObject> describe(const std::optional<T>& pass) {
  if (!pass) return std::nullopt;
  return describe(*pass);
}

// The rest of a plan, which the tests read.
void add_plan(JsonObject& object, const Plan& plan) {
  object.add("raster_group", plan.main.raster_group)
      .add("tiles_m", plan.main.tiles_m)
      .add("tiles_n", plan.main.tiles_n)
      .add("result_fits_l2", plan.main.result_fits_l2)
      .add("repack_a", describe(plan.passes.repack_a))
      .add("repack_b", describe(plan.passes.repack_b))
      .add("sums_a", describe(plan.passes.sums_a))
      .add("sums_b", describe(plan.passes.sums_b))
      .add("split", describe(plan.passes.split))
      .add("recompute", describe(plan.passes.recompute))
      .add("epilogue_path", name(plan.main.epilogue_path))
      .add("vector_a", plan.main.vector_a)
      .add("vector_b", plan.main.vector_b);
}

// JSON: the text, and the plan if a kernel is launched.
Results describe(const Call& call, decltype(&plan::explain) text_of) {
  const Operator& op = call.op;
  const Arguments arguments = unbox(call);
  CheckedGemm checked;
  check(op, arguments, Target::plan, checked);
  const Device& device = choose_device(call, arguments);
  std::int64_t strides[kMaxDims];
  if (!arguments[Slot::out]) bind_unallocated_out(checked, strides);
  if (checked.empty() || checked.has_no_group()) {
    const char* const what =
        checked.empty() ? "; nothing is launched." : "; it is zeros, since there is no group.";
    return text_result(
        JsonObject()
            .add("text", join(name(op), ": the result ", checked.empty() ? "is empty, of" : "has",
                              " shape ", checked.shape(), what))
            .add("products", std::int64_t(0))
            .json());
  }
  BatchedProblem batched;
  make_problems(op, checked, arguments, batched);
  const bool copied =
      arguments[Slot::out] && plan::copies_result(batched.problem, arguments.filter());
  if (copied) {
    bind_unallocated_out(checked, strides);
    batched = {};
    make_problems(op, checked, arguments, batched);
  }
  if (arguments.amax) batched.problem.set(Slot::amax, Matrix{0, DType::f32});
  const Plan whole = plan::make_plan(batched.problem, device, arguments.filter());
  const Strips strips(batched.problem, whole);
  const bool is_whole = strips.count() == 1;
  const Problem problem = strips[0];
  const Plan plan = is_whole ? whole : plan::make_plan(problem, device, arguments.filter());
  std::string text = text_of(problem, plan, device);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (!is_whole) text += strips_line(strips, problem);
  JsonObject object;
  object.add("text", text + batch_and_device_lines(checked, batched, device, copied))
      .add("products", batched.count() * strips.count());
  for (const plan::Fact& fact : plan::facts(problem, plan, device))
    std::visit([&](const auto& value) { object.add(fact.name, value); }, fact.value);
  add_plan(object, plan);
  return text_result(object.json());
}

}  // namespace

Results explain(const Call& call) { return describe(call, plan::explain); }

Results check_layout(const Call& call) { return describe(call, plan::check_layout); }

}  // namespace tcgemm::ops
