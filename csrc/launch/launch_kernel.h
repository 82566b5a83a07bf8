// Queueing one kernel on a stream, and the sentence when CUDA refuses.
#pragma once

#include <cuda_runtime.h>

namespace tcgemm::launch {

// What is launched, for errors: a row of the catalog, or a pass by its name.
struct LaunchLabel {
  int config_index = -1;
  const char* pass = "";
};

struct GridShape {
  int grid, threads;
  int shared = 0;
  int cluster = 1;
  // The kernel waits for its prerequisites itself (ptx/dependent.cuh), and so may start early.
  bool overlap = false;
};

// Throws std::runtime_error: "tcgemm: <what> <step> failed: <CUDA's words>."
void check(cudaError_t error, const char* what, LaunchLabel label);
// `params` is the one parameter of the __global__ function `pointer`.
void launch_kernel(const void* pointer, const void* params, const GridShape& shape, void* stream,
                   LaunchLabel label);
// Does the code that this GPU runs know dependent launch? In older code nothing waits.
bool supports_dependent_launch(int device);

}  // namespace tcgemm::launch
