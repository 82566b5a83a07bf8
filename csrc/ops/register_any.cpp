// What is there for every device: explain, check_layout and build_info; and, where no backend
// computes a product, the sentence that says why (the dispatcher's own lists fifty keys).
#include "ops/build_info.h"
#include "ops/dense.h"
#include "ops/explain.h"
#include "ops/prepack.h"
#include "ops/quantize.h"
#include "ops/sparse.h"

namespace tcgemm::ops {
namespace {

// Says why no backend computes with a tensor, if that is for its device.
void refuse_device(const char* op, const View& view) {
  if (!view || is_cpu(view)) return;
  if (is_cuda(view) && !TCGEMM_CUDA)
    fail(op, ": ", view.name, " is on ", device_name(view),
         ", but this tcgemm was built without CUDA; rebuild it where nvcc and a CUDA build of "
         "torch are installed, or move the tensors with .cpu().");
  if (is_meta(view))
    fail(op, ": ", view.name,
         " is on meta, and only the Python package knows the shapes of "
         "results without data; import tcgemm first.");
  if (!is_cuda(view))
    fail(op, ": ", view.name, " is on ", device_name(view),
         ", but products are computed on cuda and cpu; move the tensors with .to(\"cuda\") or "
         ".cpu().");
}

// What is left are quantised tensors: strided, on the CPU, and of a dtype without a number here.
[[noreturn]] void refuse_type(const char* op, const View& view) {
  fail(op, ": ", view.name, " is ", type_name(view.type),
       ", and nothing here takes such a tensor; pass ", view.name,
       ".dequantize() if it is quantised, or a plain dense tensor.");
}

Results refuse(Op op, const Arguments& arguments) {
  CheckedGemm checked;
  read_tensors(op, arguments, checked);  // refuses sparse layouts itself
  for (const CheckedOperand& operand : checked.operand) refuse_device(name(op), operand.view);
  const View* view = &checked.operand[A].view;
  for (const CheckedOperand& operand : checked.operand)
    if (operand.view && !operand.view.known) view = &operand.view;
  refuse_type(name(op), *view);
}

Quantized refuse_quantize(const QuantizeArguments& arguments) {
  const View x = view_of("tcgemm.quantize", "x", arguments.x);
  refuse_device("tcgemm.quantize", x);
  refuse_type("tcgemm.quantize", x);
}

TensorHandle refuse_prepare(const TensorHandle& tensor) {
  const View w = view_of("tcgemm.prepare", "w", tensor);
  refuse_device("tcgemm.prepare", w);
  refuse_type("tcgemm.prepare", w);
}

SparseResults refuse_sparse(SparseOp op, const SparseArguments& arguments) {
  const View views[] = {view_of(name(op), "w", arguments.w),
                        view_of(name(op), "values", arguments.values),
                        view_of(name(op), "metadata", arguments.metadata)};
  for (const View& view : views) refuse_device(name(op), view);
  for (const View& view : views)
    if (view && !view.known) refuse_type(name(op), view);
  refuse_type(name(op), arguments.w ? views[0] : views[2]);
}

// The default of describe.h: tensors that are on no GPU of this build.
const Device* no_device(const Arguments&) { return nullptr; }

void build_info_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  stack[0] = box_string(build_info());
}

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY_IMPL(tcgemm, CompositeExplicitAutograd, m) {
  tcgemm::ops::register_dense<tcgemm::ops::refuse>(m);
  tcgemm::ops::register_quantize<tcgemm::ops::refuse_quantize>(m);
  tcgemm::ops::register_prepare<tcgemm::ops::refuse_prepare>(m);
  tcgemm::ops::register_sparse<tcgemm::ops::refuse_sparse>(m);
  tcgemm::ops::register_describe<tcgemm::ops::no_device>(m);
  m.impl("build_info", tcgemm::ops::build_info_kernel);
}
