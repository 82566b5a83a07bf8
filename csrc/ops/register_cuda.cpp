// The operators for CUDA tensors: plan, workspace, launch. Compiled in CUDA builds only.
#include "launch/launch.h"
#include "launch/quantize.h"
#include "launch/sparse.h"
#include "launch/split_fp32.h"
#include "ops/dense.h"
#include "ops/explain.h"
#include "ops/prepack.h"
#include "ops/quantize.h"
#include "ops/sparse.h"
#include "plan/planner.h"
#include "plan/split_fp32.h"

// Lives in torch's CUDA library; weak, so that this library also loads under a torch without CUDA,
// which never comes here. torch declares it for its own CUDA builds only.
extern "C" [[gnu::weak]] AOTITorchError aoti_torch_get_current_cuda_stream(
    std::int32_t device_index, void** stream);

namespace tcgemm::ops {
namespace {

// Makes a device current for as long as it lives; costs one call where it is current already.
class DeviceGuard {
 public:
  explicit DeviceGuard(std::int32_t index) {
    std::int32_t current = -1;
    if (aoti_torch_get_current_device_index(&current) == 0 && current == index) return;
    if (aoti_torch_create_device_guard(index, &guard_) != 0)
      fail("tcgemm: torch could not make cuda:", index,
           " the current device; its message stands on stderr.");
  }
  ~DeviceGuard() {
    if (guard_) aoti_torch_delete_device_guard(guard_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  DeviceGuardHandle guard_ = nullptr;
};

void* current_stream(std::int32_t index) {
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream == nullptr ||
      aoti_torch_get_current_cuda_stream(index, &stream) != 0)
    fail("tcgemm: torch gave no stream of cuda:", index, "; its message stands on stderr.");
  return stream;
}

// Freed when the launch has been queued: torch gives it out again on the same stream only.
class Workspace {
 public:
  Workspace(std::size_t size, const View& like) {
    const std::int64_t bytes = static_cast<std::int64_t>(size);
    if (bytes > 0) memory_ = allocate("a workspace", {&bytes, 1}, type_of(DType::u8), like);
  }
  void* address() const { return memory_ ? data(memory_) : nullptr; }

 private:
  TensorHandle memory_;
};

void run(const BatchedProblem& products, const CheckedGemm& checked, const Arguments& arguments) {
  const View& a = checked.operand[A].view;
  const Device& device = launch::device(a.device_index);
  const std::string_view kernel = arguments.kernel ? std::string_view(*arguments.kernel) : "";
  const DeviceGuard guard(a.device_index);
  void* const stream = current_stream(a.device_index);
  for_each(products, [&](const Problem& problem) {
    const Plan plan = plan::make_plan(problem, device, kernel);
    const Workspace workspace(plan.workspace, a);
    launch::launch(problem, plan, workspace.address(), a.device_index, stream);
  });
}

const Device* device_of(const Arguments& arguments) {
  std::int32_t index = 0;
  aoti_torch_get_device_index(arguments.a.get(), &index);
  return &launch::device(index);
}

Results product(Op op, const Arguments& arguments) {
  return dense(op, arguments, Target::cuda, run);
}

void run_quantize(const Quantization& quantization, const View& x) {
  const DeviceGuard guard(x.device_index);
  const Workspace workspace(launch::quantize_workspace(quantization), x);
  launch::quantize(quantization, workspace.address(), x.device_index,
                   current_stream(x.device_index));
}

Quantized quantized(const QuantizeArguments& arguments) {
  return quantize(arguments, run_quantize);
}

void run_prepare(const Problem& problem, const TensorHandle& prepacked, const View& w) {
  // Says so where this GPU has no kernel for the products.
  static_cast<void>(plan::make_plan(problem, launch::device(w.device_index)));
  const DeviceGuard guard(w.device_index);
  const SplitFp32Pass pass = plan::split_fp32_pass(plan::operand_b(problem), {});
  launch::prepack(pass, data(prepacked), w.device_index, current_stream(w.device_index));
}

TensorHandle prepared(const TensorHandle& w) { return prepare(w, run_prepare); }

template <class Task, void (*pass)(const Task&, int, void*)>
void run_sparse(const Task& task, const View& like) {
  const DeviceGuard guard(like.device_index);
  pass(task, like.device_index, current_stream(like.device_index));
}

SparseResults sparse_result(SparseOp op, const SparseArguments& arguments) {
  constexpr RunSparse run{run_sparse<Compression, launch::compress>,
                          run_sparse<Decompression, launch::decompress>,
                          run_sparse<Gathering, launch::gather>, run_sparse<Pruning, launch::prune>,
                          run_sparse<MetadataTiling, launch::tile>};
  return sparse(op, arguments, run);
}

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY_IMPL(tcgemm, CUDA, m) {
  tcgemm::ops::register_dense<tcgemm::ops::product>(m);
  tcgemm::ops::register_quantize<tcgemm::ops::quantized>(m);
  tcgemm::ops::register_prepare<tcgemm::ops::prepared>(m);
  tcgemm::ops::register_sparse<tcgemm::ops::sparse_result>(m);
  tcgemm::ops::register_describe<tcgemm::ops::device_of>(m);
}
