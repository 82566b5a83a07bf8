// The decisions and estimates of a plan: as text for people, and as fields for programs.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// A field of the Explanation of Python.
struct Fact {
  const char* name;
  std::variant<bool, int, std::size_t, double, std::string, std::array<int, 3>> value;
};

// `plan` must come from make_plan with the same problem and device. The texts have several lines.
std::string explain(const Problem& original, const Plan& plan, const Device& device);
std::string check_layout(const Problem& original, const Plan& plan, const Device& device);
// The problem must not be empty. `swap_ab`, `copies` and `layout` are about the caller's operands.
std::vector<Fact> facts(const Problem& original, const Plan& plan, const Device& device);

}  // namespace tcgemm::plan
