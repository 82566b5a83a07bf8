// The time of a kernel that memory may bound.
#pragma once

#include "core/device.h"
#include "core/gemm_config.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// The larger of the arithmetic's time and the bytes' time. A share of the smaller one is added, so
// that among memory-bound kernels the one with less arithmetic wins. The share is up to twice as
// large where there are few waves of few k-blocks: the first wave loads its stages before it
// multiplies, and the last one stores afterwards. A cluster adds slices after the last byte.
// `bytes`: the memory traffic that no plan can avoid.
double with_memory(const LaunchConfig& launch, const GemmConfig& config, const Problem& problem,
                   double bytes, const Device& device);

// with_memory() is not below this for any launch that takes `microseconds` or more.
double least_with_memory(double microseconds, double bytes, const Device& device);

}  // namespace tcgemm::plan
