// One kernel of the catalog with its Params: tensor maps, grid, and the epilogue. CUDA builds only.
#pragma once

#include "core/params.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::launch {

struct LaunchContext {
  const Problem& problem;  // as the kernel sees it
  const Plan& plan;
  LaunchConfig run;  // of the kernel: the plan's own, or another one of it
  Matrix a, b;       // m x k and n x k, as they are after the passes
  SplitFp32Params split;
  TileFilter filter;
  void* workspace;
  int device;
  void* stream;
};

void launch_gemm(const LaunchContext& call);

}  // namespace tcgemm::launch
