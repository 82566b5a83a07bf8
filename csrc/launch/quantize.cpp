// Quantization -> QuantizeParams -> one kernel, or two to find one scale for the whole tensor.
#include "launch/quantize.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "launch/launch_kernel.h"
#include "launch/params.h"

namespace tcgemm::launch {

std::size_t quantize_workspace(const Quantization& quantization) {
  return quantization.granularity == Granularity::tensor && !quantization.given() ? sizeof(float)
                                                                                  : 0;
}

void quantize(const Quantization& request, void* workspace, int device, void* stream) {
  const LaunchLabel label{-1, "quantize"};
  choose_device(device, label);
  QuantizeParams params{};
  params.x = tensor_ref(request.x, request.rows, request.cols, request.batch);
  params.values = request.values;
  params.scales = request.scales;
  params.given = request.given();
  params.amax = reinterpret_cast<std::uint32_t*>(request.amax);
  params.rows = request.rows;
  params.cols = request.cols;
  params.batch = request.batch;
  params.to = request.dtype;

  // A tensor without elements still gets a scale, so the grid has at least one block.
  const auto run = [&](const void* pointer, int blocks) {
    launch_pass(pointer, &params, std::max(blocks, 1), kernels::kQuantizeThreads, device, stream,
                label);
  };
  if (request.granularity == Granularity::tensor) {
    if (!request.given()) params.amax = static_cast<std::uint32_t*>(workspace);
    check(cudaMemsetAsync(params.amax, 0, sizeof(float), static_cast<cudaStream_t>(stream)),
          "clearing amax of", label);
    if (!request.given())
      run(kernels::quantize_amax(params), kernels::quantize_amax_blocks(params));
  }
  run(kernels::quantize(params, request.granularity),
      kernels::quantize_blocks(params, request.granularity));
}

}  // namespace tcgemm::launch
