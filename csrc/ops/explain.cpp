// Tensors -> Problem -> Plan -> text. Nothing is computed and nothing is allocated.
#include "ops/explain.h"

#include "ops/batch.h"
#include "ops/check.h"
#include "plan/planner.h"

namespace tcgemm::ops {
namespace {

constexpr const char* kDefaultDevice = "H200";

const Device& choose_device(Op op, const Arguments& arguments, DeviceOf device_of) {
  if (!arguments.device) {
    if (const Device* device = device_of(arguments)) return *device;
  }
  const std::string& wanted = arguments.device ? *arguments.device : kDefaultDevice;
  const Device* device = plan::find_device(wanted);
  if (!device)
    fail(name(op), ": device is \"", wanted, "\", but the known GPUs are ", plan::device_names(),
         "; pass one of these names, or None for the GPU of the tensors.");
  return *device;
}

// What the operators would allocate, but for the memory.
void imagine_out(CheckedGemm& g, std::int64_t* strides) {
  contiguous_strides(g.shape(), strides);
  CheckedOperand& out = g.operand[Out];
  out.view = g.operand[A].view;
  out.view.sizes = g.sizes;
  out.view.strides = strides;
  out.view.dims = g.dims;
  out.view.dtype = g.out_dtype;
  out.view.address = 0;
  bind_matrix_dims(out, g.shows_rows, g.shows_cols);
}

// What the planner's text cannot know: how the call became one problem, and where it would run.
std::string statistics(const CheckedGemm& g, const BatchedProblem& products, const Device& device) {
  std::string text;
  if (products.problem.m != g.m)
    text += join("\n  batch         b serves every batch: the batch dimensions and the ", g.m,
                 " rows of a are one dimension of ", products.problem.m, " rows");
  if (products.count() > 1)
    text += join("\n  batch         the strides of the batch dimensions ",
                 Shape{g.batch, g.batch_dims}, " do not merge, so ", products.count(),
                 " products like this run one after another; contiguous operands would be one");
  if (is_cpu(g.operand[A].view))
    text += join("\nThese tensors are on the CPU, where the CPU implementation runs; ",
                 "the above is what one ", device.name, " would do.");
  return text;
}

}  // namespace

std::string describe(Op op, const Arguments& arguments, DeviceOf device_of) {
  CheckedGemm checked;
  check(op, arguments, Target::plan, checked);
  const Device& device = choose_device(op, arguments, device_of);
  std::int64_t strides[kMaxDims];
  if (!arguments.out) imagine_out(checked, strides);
  if (checked.empty())
    return join(name(op), ": the result is empty, of shape ", checked.shape(),
                "; nothing is launched.");
  BatchedProblem products;
  collapse(checked, arguments.alpha, arguments.beta, products);
  bind_prepacked(op, checked, products.problem);
  bind_sparse(checked, products.problem);
  const std::string_view kernel = arguments.kernel ? std::string_view(*arguments.kernel) : "";
  const Problem& problem = products.problem;
  const Plan plan = plan::make_plan(problem, device, kernel);
  std::string text = op == Op::layout ? plan::check_layout(problem, plan, device)
                                      : plan::explain(problem, plan, device);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text + statistics(checked, products, device);
}

}  // namespace tcgemm::ops
