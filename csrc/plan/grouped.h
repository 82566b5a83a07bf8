// The choice of a kernel for a grouped product.
#pragma once

#include <string_view>

#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// A batch of groups of the mean length: what the host knows of a grouped product, whose offs only
// the GPU reads.
Problem mean_groups(const Problem& problem);

// The cheapest kernel for groups of the mean length. The plan has no kernel if there is none.
// Kernels divide rows or k, so A and B are swapped where the groups are columns.
// least_bytes: the traffic of mean_groups().
Plan plan_grouped(const Problem& problem, const Device& device, std::string_view filter,
                  double least_bytes);

}  // namespace tcgemm::plan
