// The operators for CUDA tensors: they plan, allocate a workspace, and launch. CPU builds leave
// this file out.
#include <stdexcept>
#include <string>

#include "core/code.h"
#include "launch/activation_backward.h"
#include "launch/launch.h"
#include "launch/pack_weight.h"
#include "launch/quantize.h"
#include "launch/sparse.h"
#include "launch/split_fp32.h"
#include "ops/product/batch.h"
#include "ops/product/captured.h"
#include "ops/product/strips.h"
#include "ops/register/register.h"
#include "ops/torch_error.h"
#include "plan/planner.h"
#include "plan/split_fp32.h"

// torch's CUDA library defines it, and torch declares it only for its own CUDA builds. It is weak,
// so that this library also loads under a torch without CUDA, which never calls these operators.
extern "C" [[gnu::weak]] AOTITorchError aoti_torch_get_current_cuda_stream(
    std::int32_t device_index, void** stream);

namespace tcgemm::ops {
namespace {

// Makes a device current during its lifetime. It costs one call if the device is current already.
class DeviceGuard {
 public:
  explicit DeviceGuard(std::int32_t index) {
    std::int32_t current = -1;
    if (aoti_torch_get_current_device_index(&current) == 0 && current == index) return;
    if (aoti_torch_create_device_guard(index, &guard_) != 0)
      fail_in_torch("making cuda:", index, " the current device");
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
    fail_in_torch("reading the current stream of cuda:", index);
  return stream;
}

// Device memory for one launch. It is freed once the launch is queued, which is safe: torch reuses
// the memory only on the same stream.
class Workspace {
 public:
  Workspace(std::size_t size, const View& like) {
    const std::int64_t bytes = static_cast<std::int64_t>(size);
    if (bytes > 0) memory_ = allocate("a workspace", {&bytes, 1}, scalar_type_of(DType::u8), like);
  }
  void* address() const { return memory_ ? data(memory_) : nullptr; }

 private:
  TensorHandle memory_;
};

// Throws if this build has no code for the GPU. The planner does not: it also plans for GPUs of
// other machines.
const Device& gpu(int index) {
  const Device& device = launch::device(index);
  if (code_on(device.compute_capability).capability == 0)
    throw std::runtime_error("tcgemm: this build has no code for " + std::string(device.name) +
                             "; build it with TORCH_CUDA_ARCH_LIST naming that GPU, or run on the "
                             "CPU.");
  return device;
}

void run_gemm(const BatchedProblem& batched, const CheckedGemm& checked,
              const Arguments& arguments) {
  const View& a = checked[Slot::a].view;
  const Device& device = gpu(a.device_index);
  const DeviceGuard guard(a.device_index);
  void* const stream = current_stream(a.device_index);
  if (reads_second_form(batched.problem) && launch::is_capturing(stream))
    note_captured(batched.problem);
  const auto run = [&](const Problem& problem, const Plan& plan) {
    const Workspace workspace(plan.workspace, a);
    launch::launch(problem, plan, workspace.address(), a.device_index, stream);
  };
  const auto plan_of = [&](const Problem& problem) {
    return plan::make_plan(problem, device, arguments.filter());
  };
  const auto run_planned = [&](const Problem& problem, const Plan& plan) {
    if (!problem.has(Slot::z) || plan.stores_z()) return run(problem, plan);
    for (const Problem& part : {without_z(problem), only_z(problem)}) run(part, plan_of(part));
  };
  for_each_problem(batched, [&](const Problem& problem) {
    const Plan plan = plan_of(problem);
    const Strips strips(problem, plan);
    if (strips.count() == 1) return run_planned(problem, plan);
    for (std::int64_t i = 0; i < strips.count(); ++i) {
      const Problem strip = strips[i];
      run_planned(strip, plan_of(strip));
    }
  });
}

const Device* device_of(const Arguments& arguments) {
  std::int32_t index = 0;
  aoti_torch_get_device_index(arguments[Slot::a].get(), &index);
  return &gpu(index);
}

void run_quantize(const Quantization& quantization, const View& x) {
  const DeviceGuard guard(x.device_index);
  const Workspace workspace(launch::quantize_workspace(quantization), x);
  launch::quantize(quantization, workspace.address(), x.device_index,
                   current_stream(x.device_index));
}

void run_activation_backward(const ActivationBackward& task, const View& g) {
  const DeviceGuard guard(g.device_index);
  const ActivationBackwardParams params = launch::activation_backward_params(task, g.device_index);
  const Workspace workspace(launch::activation_backward_workspace(params), g);
  launch::activation_backward(params, task.activation, workspace.address(), g.device_index,
                              current_stream(g.device_index));
}

void run_prepare(const Problem& problem, const TensorHandle& prepared, const View& w) {
  // Throws if this GPU has no kernel for a GEMM with w.
  static_cast<void>(plan::make_plan(problem, gpu(w.device_index)));
  const DeviceGuard guard(w.device_index);
  const SplitFp32Pass pass = plan::split_fp32_pass(plan::operand_b(problem), {});
  launch::prepare(pass, data(prepared), w.device_index, current_stream(w.device_index));
}

template <class Task, void (*pass)(const Task&, int, void*)>
void run(const Task& task, const View& like) {
  const DeviceGuard guard(like.device_index);
  pass(task, like.device_index, current_stream(like.device_index));
}

constexpr Backend kCuda{.target = Target::cuda,
                        .gemm = run_gemm,
                        .quantize = run_quantize,
                        .pack_weight = run<Packing, launch::pack_weight>,
                        .activation_backward = run_activation_backward,
                        .compress = run<Compression, launch::compress>,
                        .decompress = run<Decompression, launch::decompress>,
                        .gather = run<Gathering, launch::gather>,
                        .prune = run<Pruning, launch::prune>,
                        .tile = run<MetadataTiling, launch::tile>,
                        .prepare = run_prepare,
                        .device_of = device_of};

}  // namespace
}  // namespace tcgemm::ops

STABLE_TORCH_LIBRARY_IMPL(tcgemm, CUDA, m) { tcgemm::ops::register_all<tcgemm::ops::kCuda>(m); }
