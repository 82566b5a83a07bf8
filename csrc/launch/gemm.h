// Launches one kernel of the catalog: fills its Params with tensor maps, tiling and epilogue. CUDA
// builds only.
#pragma once

#include "core/params.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::launch {

struct LaunchContext {
  const Problem& problem;  // in the kernel's orientation
  const Plan& plan;
  LaunchConfig run;  // the kernel to launch: the plan's main one, its alternative or recompute
  Matrix a, b;       // m x k and n x k, after the passes
  SplitFp32Params split;
  TileFilter filter;
  void* workspace;
  int device;
  void* stream;
  // The sums of slices, which the kernel stores and adds.
  void* partial_sums = nullptr;
  GridSteps grid_steps = GridSteps::all;
};

// Returns false if a grid that adds slices does not fit the context (a part of a GPU).
bool launch_gemm(const LaunchContext& call);

// How many clusters of `size` CTAs of a TMA kernel a GPU runs at one time, by the driver.
// 0: it did not say, or the build has no such kernel.
int active_clusters(int size, int device);

}  // namespace tcgemm::launch
