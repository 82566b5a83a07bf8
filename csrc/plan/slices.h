// The numbers of slices of k that the planner tries.
#pragma once

#include <array>

#include "core/device.h"
#include "core/problem.h"

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

  std::array<int, 16> counts_{};
  int size_ = 0;
  std::int64_t most_ = 0;
};

}  // namespace tcgemm::plan
