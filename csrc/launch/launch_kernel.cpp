// Launches one kernel on a stream; a CUDA error becomes a sentence.
#include "launch/launch_kernel.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <stdexcept>
#include <string>

#include "catalog.h"
#include "launch/launch.h"

namespace tcgemm::launch {

namespace {

bool has_context() {
  static const auto current = driver_function<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent");
  CUcontext context = nullptr;
  return current != nullptr && current(&context) == CUDA_SUCCESS && context != nullptr;
}

}  // namespace

void choose_device(int device, LaunchLabel label) {
  int now = -1;
  if (has_context() && cudaGetDevice(&now) == cudaSuccess && now == device) return;
  check(cudaSetDevice(device), "choosing the device for", label);
}

// The kernel's name is built only after an error, because that takes microseconds.
void check(cudaError_t error, const char* what, LaunchLabel label) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that the next call does not report it
  const std::string kernel =
      label.config_index < 0 ? label.pass : name(kCatalog[label.config_index]).text;
  throw std::runtime_error("tcgemm: " + std::string(what) + " " + kernel +
                           " failed: " + cudaGetErrorString(error) + ".");
}

bool launch_kernel(const void* pointer, const void* params, const GridShape& shape, void* stream,
                   LaunchLabel label) {
  cudaLaunchConfig_t config{};
  // One cluster is as high as the grid, so that its index is the index along x.
  config.gridDim = dim3(shape.grid / shape.cluster.n, shape.cluster.n);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attributes[3]{};
  config.attrs = attributes;
  if (shape.cluster.size() > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {unsigned(shape.cluster.m),
                                                    unsigned(shape.cluster.n), 1};
  }
  if (shape.dependent_launch) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  void* arguments[] = {const_cast<void*>(params)};
  const cudaError_t error = cudaLaunchKernelExC(&config, pointer, arguments);
  if (error == cudaErrorCooperativeLaunchTooLarge) {
    cudaGetLastError();  // clears the error
    return false;
  }
  check(error, "launching", label);
  return true;
}

void launch_pass(const void* pointer, const void* params, int blocks, int threads, int device,
                 void* stream, LaunchLabel label, int cluster) {
  launch_kernel(pointer, params,
                {blocks, threads, 0, {cluster, 1}, supports_dependent_launch(device)}, stream,
                label);
}

bool supports_dependent_launch(int device) {
  return code_on(launch::device(device).compute_capability).capability >= 90;
}

}  // namespace tcgemm::launch
