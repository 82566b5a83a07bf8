// The times of the Hopper kernels with a packed weight that load by TMA.
#pragma once

#include "core/device.h"
#include "core/gemm_config.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// Factor of a k-block with a packed weight in a cluster that shares the activation.
inline constexpr double kPackedCluster = 1.06;

constexpr bool is_packed_wgmma(const GemmConfig& config) {
  return config.arch == Arch::sm90a && config.mainloop == Mainloop::packed;
}

// Microseconds of such a kernel until it adds slices of k. `store`: the clocks in which a CTA
// stores a tile. `bytes`: the memory traffic that no plan can avoid.
double packed_time(const GemmConfig& config, const Problem& problem, const Device& device,
                   const LaunchConfig& launch, double store, double bytes);
// Microseconds in which the CTAs of a cluster, the grid or another kernel add its slices.
double packed_sum_time(const GemmConfig& config, const Problem& problem,
                       const LaunchConfig& launch);

// The fewest microseconds of a k-block with mma.sync.
double packed_mma_block(const GemmConfig& config, const LaunchConfig& launch, const Device& device);

}  // namespace tcgemm::plan
