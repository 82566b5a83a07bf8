// ActivationBackward -> ActivationBackwardParams -> one kernel, or two if the rows are split.
#include "launch/activation_backward.h"

#include <cuda_runtime.h>

#include "kernels/kernels.h"
#include "launch/launch.h"
#include "launch/launch_kernel.h"
#include "launch/params.h"

namespace tcgemm::launch {

ActivationBackwardParams activation_backward_params(const ActivationBackward& task, int device) {
  ActivationBackwardParams params{};
  params.g = tensor_ref(task.g, task.rows, task.cols, task.batch);
  if (task.activation != Activation::none)
    params.z = tensor_ref(task.z, task.rows, task.cols, task.batch);
  params.gz = task.gz;
  params.gz_dtype = task.gz_dtype;
  params.gz_vectors = whole_vectors(task.cols, task.gz_dtype);
  params.sums = task.sums;
  params.sum_dtype = task.sum_dtype;
  params.rows = task.batch * task.rows;
  params.cols = task.cols;
  params.rows_per_matrix = task.rows;
  kernels::partition_activation_backward(params, launch::device(device).multiprocessors);
  return params;
}

std::size_t activation_backward_workspace(const ActivationBackwardParams& params) {
  if (params.sums == nullptr || params.splits == 1) return 0;
  return params.splits * std::size_t(params.cols) * sizeof(float);
}

void activation_backward(ActivationBackwardParams params, Activation activation, void* workspace,
                         int device, void* stream) {
  const LaunchLabel label{-1, "the backward of an activation"};
  choose_device(device, label);
  if (params.cols == 0) return;
  params.partial_sums = static_cast<float*>(workspace);
  const auto run = [&](const void* pointer, int blocks) {
    launch_pass(pointer, &params, blocks, kernels::kActivationBackwardThreads, device, stream,
                label);
  };
  run(kernels::activation_backward(params, activation),
      kernels::activation_backward_blocks(params));
  if (workspace != nullptr)
    run(kernels::add_partial_sums(), kernels::add_partial_sums_blocks(params));
}

}  // namespace tcgemm::launch
