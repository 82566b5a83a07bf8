// The time of a kernel that memory may bound.
#include "plan/memory.h"

#include <algorithm>

#include "plan/candidate.h"

namespace tcgemm::plan {
namespace {

constexpr double kLaunch = 2.0;    // microseconds
constexpr double kExposed = 0.05;  // share of the smaller time

// L2 has two halves, and each fetches what its multiprocessors read. So an operand that several
// clusters read costs up to twice its bytes: an H200 read 128 x 4096 x 14336 in 52 us where two
// clusters read each row of the weight, and in 36 us where they shared it. The CTAs of a slice of k
// read it at the same time, and less of it twice. Of small matrices of a batch, all of whose tiles
// are computed at one time, nothing is: 64 products of 256 x 256 x 256 took 6.8 us with CTAs alone,
// and 7.4 in clusters of two.
double repeated_bytes(const LaunchConfig& launch, const Problem& problem) {
  constexpr double kSecondHalf = 0.9;
  constexpr double kSecondHalfSlices = 0.5;
  const bool is_small = launch.tiles_m * launch.tiles_n * launch.cluster.size() <= launch.grid;
  if (problem.batch > 1 && is_small) return 0;
  const double share = launch.stored_slices() > 1 ? kSecondHalfSlices : kSecondHalf;
  const auto repeated = [&](double bytes, std::int64_t readers) {
    return share * bytes * (1 - 1 / double(std::max<std::int64_t>(1, readers)));
  };
  return repeated(matrix_bytes(problem[Slot::a], problem.m, problem.k, problem.batch),
                  launch.tiles_n) +
         repeated(matrix_bytes(problem[Slot::b], problem.k, problem.n, problem.batch),
                  launch.tiles_m);
}

// The share of the rate of memory that the CTAs of a launch reach. An H200 read the 50 MB of
// 24 x 6144 x 4096 in 17.4 us with 96 CTAs, and in 16.0 us with 128.
double busy_rate(const LaunchConfig& launch, const Device& device) {
  constexpr double kEnough = 0.9;     // of the multiprocessors
  constexpr double kIdleShare = 0.2;  // less if almost all of them idle
  const double busy = launch.grid / (kEnough * device.multiprocessors);
  return 1 - kIdleShare * (1 - std::min(1.0, busy));
}

}  // namespace

double with_memory(const LaunchConfig& launch, const GemmConfig& config, const Problem& problem,
                   double bytes, const Device& device) {
  constexpr double kStagedBlocks = 4;  // k-blocks
  const double k = double(problem.k);
  double rate = device.memory_rate;
  if (config.shares_a() && config.input != DType::b1) {  // the others were not measured
    bytes += repeated_bytes(launch, problem);
    rate *= busy_rate(launch, device);
  }
  const double floor = kLaunch + bytes / rate * 1e6;
  const double staged = std::min(1.0, kStagedBlocks * config.tile_k() / std::max(1.0, k));
  const double share = kExposed * (1 + staged / std::max(1.0, launch.waves));
  return std::max(launch.microseconds, floor + cluster_sum_time(config, launch, device)) +
         share * std::min(launch.microseconds, floor);
}

double least_with_memory(double microseconds, double bytes, const Device& device) {
  const double floor = kLaunch + bytes / device.memory_rate * 1e6;
  return std::max(microseconds, floor) + kExposed * std::min(microseconds, floor);
}

}  // namespace tcgemm::plan
