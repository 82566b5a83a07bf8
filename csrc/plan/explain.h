// The decisions and estimates of a plan: as text for people, and as fields for programs.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// `swap_ab`, `copies` and `layout` are about the caller's operands.
struct Facts {
  int config_index =
      -1;  // row of the catalog; -1: nothing is launched, and the rest has no meaning
  std::optional<std::string> kernel;  // its name
  std::string device, layout, copies, store_path, epilogue, bound, why;
  bool swap_ab = false, cluster_adds = false;
  bool tuned = false;         // tcgemm.tune has chosen the kernel
  std::string product;        // its name in the file of tcgemm.tune; empty if it is not tuned
  std::array<int, 3> tile{};  // m, n, k
  int stages = 0, threads = 0, cluster = 0, slices = 0, grid = 0;
  double waves = 0;
  std::size_t workspace = 0;  // bytes
  double flops = 0, bytes = 0;
  double compute_us = 0, memory_us = 0, estimate_us = 0;
};

// `plan` must come from make_plan with the same problem and device. The texts have several lines.
std::string explain(const Problem& original, const Plan& plan, const Device& device);
std::string check_layout(const Problem& original, const Plan& plan, const Device& device);
Facts facts(const Problem& original, const Plan& plan, const Device& device);

}  // namespace tcgemm::plan
