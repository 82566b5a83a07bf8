// Queueing one kernel on a stream, and the sentence when CUDA refuses.
#pragma once

#include <cuda_runtime.h>

namespace tcgemm::launch {

// What is launched, for errors: a row of the catalog, or a pass by its name.
struct Step {
  int row = -1;
  const char* pass = "";
};

struct Shape {
  int grid, threads;
  int shared = 0;
  int cluster = 1;
  // The kernel waits for its prerequisites itself (ptx/dependent.cuh), and so may start early.
  bool overlap = false;
};

// Throws std::runtime_error: "tcgemm: <what> <step> failed: <CUDA's words>."
void check(cudaError_t error, const char* what, Step step);
// `params` is the one parameter of the __global__ function `pointer`.
void submit(const void* pointer, const void* params, const Shape& shape, void* stream, Step step);
// Does the code that this GPU runs know dependent launch? In older code nothing waits.
bool overlaps(int device);

}  // namespace tcgemm::launch
