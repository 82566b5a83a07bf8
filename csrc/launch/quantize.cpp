// Quantization -> QuantizeParams -> one kernel, or two where one scale serves the whole tensor.
#include "launch/quantize.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "launch/launch_kernel.h"
#include "launch/params.h"

namespace tcgemm::launch {

std::size_t quantize_workspace(const Quantization& quantization) {
  return quantization.granularity == Granularity::tensor ? sizeof(float) : 0;
}

void quantize(const Quantization& asked, void* workspace, int device, void* stream) {
  const LaunchLabel label{-1, "quantize"};
  check(cudaSetDevice(device), "choosing the device for", label);
  QuantizeParams params{};
  params.x = tensor_ref(asked.x, asked.rows, asked.cols, asked.batch);
  params.values = asked.values;
  params.scales = asked.scales;
  params.rows = asked.rows;
  params.cols = asked.cols;
  params.batch = asked.batch;
  params.to = asked.dtype;

  // A tensor without elements still has a scale.
  const auto run = [&](const void* pointer, int blocks) {
    launch_kernel(
        pointer, &params,
        {std::max(blocks, 1), kernels::kQuantizeThreads, 0, 1, supports_dependent_launch(device)},
        stream, label);
  };
  if (asked.granularity == Granularity::tensor) {
    params.amax = static_cast<std::uint32_t*>(workspace);
    check(
        cudaMemsetAsync(workspace, 0, quantize_workspace(asked), static_cast<cudaStream_t>(stream)),
        "clearing the workspace of", label);
    run(kernels::quantize_amax(params), kernels::quantize_amax_blocks(params));
  }
  run(kernels::quantize(params, asked.granularity),
      kernels::quantize_blocks(params, asked.granularity));
}

}  // namespace tcgemm::launch
