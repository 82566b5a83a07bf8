// The cost model of the TMA + wgmma kernels on Hopper, but for those with their own: packed.h and
// tf32x2.h.
#pragma once

#include "core/device.h"
#include "core/gemm_config.h"
#include "core/plan.h"
#include "core/problem.h"
#include "plan/candidate.h"

namespace tcgemm::plan {

// The time of a kernel with any cluster, until another kernel adds slices of k. The members are
// what does not depend on the cluster.
class Sm90Time {
 public:
  Sm90Time(const GemmConfig& config, const Problem& problem, const Device& device,
           const CandidateOperands& operands);

  // Microseconds. `stored`: the problem, or that of its partial sums.
  double of(const Problem& stored, const LaunchConfig& launch) const;

 private:
  double load_clocks(const LaunchConfig& launch) const;
  double overhead_clocks(const LaunchConfig& launch, double depth) const;
  double block_clocks(const LaunchConfig& launch, double depth) const;
  // No row of the operands begins inside a sector of L2; and do the CTAs of a cluster share an
  // operand then?
  bool begins_sectors() const;
  bool shares_sectors(const LaunchConfig& launch) const;

  const GemmConfig& config_;
  const Device& device_;
  double blocks_, math_;  // of k in a tile, and the clocks of the tensor cores for one
  double flops_;          // scaled to f16's rate
  double rows_a_, rows_b_, lines_a_, lines_b_;  // of a stage, and the lines of L2 for each
};

// Microseconds that no cluster of a kernel falls below, in any division of k. It costs little: most
// kernels need not be looked at more closely. Kernels with another cost model have 0.
class Sm90Bound {
 public:
  Sm90Bound(const GemmConfig& config, const Problem& problem, const Device& device);

  // With the bytes from memory and the sums of slices. `bytes`: the memory traffic that no plan can
  // avoid.
  double least(Division division, double bytes) const;

 private:
  const GemmConfig& config_;
  const Device& device_;
  double tiles_ = 0, resident_ = 1;    // and the CTAs that run at one time
  double blocks_ = 0;                  // of k in a tile; 0 for kernels with another cost model
  double block_ = 0, grid_block_ = 0;  // clocks of a k-block, and where the grid may add slices
  double fill_ = 0;                    // clocks of a tile
  double flops_ = 0;                   // scaled to f16's rate
  double start_ = 0;                   // microseconds
};

}  // namespace tcgemm::plan
