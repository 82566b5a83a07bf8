// Launches one kernel on a stream; a CUDA error becomes a sentence.
#pragma once

#include <cuda_runtime.h>

#include "core/cluster_shape.h"

namespace tcgemm::launch {

// The name of a launch in errors: a config of the catalog, or a pass.
struct LaunchLabel {
  int config_index = -1;
  const char* pass = "";
};

struct GridShape {
  int grid, threads;
  int shared_bytes = 0;
  ClusterShape cluster;  // along x and y
  // Programmatic dependent launch: the kernel executes griddepcontrol.wait (ptx/dependent.cuh), so
  // it may start before its predecessor ends.
  bool dependent_launch = false;
  bool cooperative = false;  // the GPU runs all CTAs at one time, or none
};

// The driver's function of this name, which the library does not link to; nullptr if the driver has
// none. Ask once.
template <class Function>
Function driver_function(const char* name) {
  void* pointer = nullptr;
  cudaDriverEntryPointQueryResult result{};
  cudaGetDriverEntryPointByVersion(name, &pointer, 12000, cudaEnableDefault, &result);
  return reinterpret_cast<Function>(pointer);
}

// Makes sure that the thread has a context of the device, which a thread that never called CUDA has
// not. One that is current stays: it may be a part of the GPU (a green context).
void choose_device(int device, LaunchLabel label);
// Throws std::runtime_error: "tcgemm: <what> <label> failed: <CUDA's message>."
void check(cudaError_t error, const char* what, LaunchLabel label);
// `params` is the only parameter of the __global__ function `pointer`. Returns false if a
// cooperative launch has more CTAs than the context has places.
bool launch_kernel(const void* pointer, const void* params, const GridShape& shape, void* stream,
                   LaunchLabel label);
// Launches a pass: one with dependent launch where the GPU supports it.
void launch_pass(const void* pointer, const void* params, int blocks, int threads, int device,
                 void* stream, LaunchLabel label, int cluster = 1);
// Does the code that this GPU runs support dependent launch? Code before sm_90 has no
// griddepcontrol.wait.
bool supports_dependent_launch(int device);

}  // namespace tcgemm::launch
