// The numbers of slices of k that the planner tries.
#pragma once

#include <array>

#include "core/device.h"
#include "core/problem.h"
#include "plan/candidate.h"

namespace tcgemm::plan {

// With each number the tiles of a common shape fill the GPU once. There is none where slices cannot
// pay: the product has enough tiles, or little k.
class SliceCounts {
 public:
  SliceCounts(const Problem& problem, const Device& device);

  const int* begin() const { return counts_.data(); }
  const int* end() const { return counts_.data() + size_; }

 private:
  void add(std::int64_t count);

  static constexpr int kMostCounts = 16;

  std::array<int, kMostCounts> counts_{};
  int size_ = 0;
  std::int64_t most_ = 0;
};

// The slices of k of a batch-invariant product, if there are kernels for them: n, k and the dtype
// decide. docs/numerics/same-bits.md states the rule.
int invariant_slices(const Problem& problem);

// Stream-K is for products of a few hundred rows or columns: others fill the GPU with whole tiles,
// or with slices of small ones.
inline constexpr Division kStreamKDivision{.stream_k = true};
bool may_stream(const Problem& problem, const Device& device);

// The bytes of the sums of slices that a launch stores. A grid that adds them stores whole tiles.
inline std::size_t stored_sums_bytes(const GemmConfig& config, const Problem& problem,
                                     const LaunchConfig& launch) {
  if (!launch.grid_adds) return partial_sums_bytes(config, problem, launch.slices);
  const std::int64_t tiles = launch.tiles_m * launch.tiles_n * problem.batch;
  const std::int64_t size = launch.cluster.size();
  const std::int64_t places =
      launch.stream_k ? launch.grid / size + launch.stream_tiles() : tiles * launch.slices;
  return std::size_t(places * size) * config.slice_bytes();
}
inline std::size_t stored_sums_bytes(const Problem& problem, const LaunchConfig& launch) {
  return stored_sums_bytes(kCatalog[launch.config_index], problem, launch);
}

// The division of k with the shortest time: `whole`, which takes `microseconds`, or one of `counts`
// slices. Slices must save at least this share of the time. time(division, most): the time, or any
// number from `most` on if it is not below `most`.
inline constexpr double kLeastGain = 0.02;
template <class Counts, class Time>
Division fastest_division(Division whole, double microseconds, const Counts& counts,
                          bool cluster_adds, const Time& time) {
  Division best = whole;
  double least = (1 - kLeastGain) * microseconds;
  for (const int slices : counts) {
    const Division division{slices, cluster_adds};
    const double needed = time(division, least);
    if (needed >= least) continue;
    least = needed;
    best = division;
  }
  return best;
}

}  // namespace tcgemm::plan
