// How a kernel computes its epilogue and stores the result.
#pragma once

#include "core/gemm_config.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// `problem` has the orientation of the kernel.
StorePath store_path(const GemmConfig& config, const Problem& problem);
// The same for a kernel with EpiloguePath::slices.
StorePath store_path_of_sums(const Problem& problem);

// The arithmetic of a kernel that loads by TMA before it stores by `path`. The others have the
// rolled epilogue alone.
EpiloguePath epilogue_path(const GemmConfig& config, const Problem& problem, StorePath path);

}  // namespace tcgemm::plan
