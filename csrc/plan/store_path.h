// How a kernel computes its epilogue and stores the result.
#pragma once

#include "core/gemm_config.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// `problem` is oriented as the kernel sees it.
StorePath store_path(const GemmConfig& config, const Problem& problem);

// What the kernel computes before it stores by `path`.
EpiloguePath epilogue_path(const GemmConfig& config, const Problem& problem, StorePath path);

}  // namespace tcgemm::plan
