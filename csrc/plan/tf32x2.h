// Plans of products in two TF32 terms, which the kernel makes: core/split_fp32.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "catalog.h"
#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// The plan, if there is one that takes less than `most_microseconds`. `problem` has either
// orientation: the kernel's a is the operand with more rows, or columns, unless the kernels of the
// filter fit the other one alone.
std::optional<Plan> plan_tf32x2(const Problem& problem, const Device& device,
                                std::string_view filter, double least_bytes,
                                std::int64_t least_depth, double most_microseconds);

// Microseconds of the kernel. `least_bytes`: the memory traffic that no plan can avoid.
double tf32x2_time(const GemmConfig& config, const Problem& problem, const Device& device,
                   const LaunchConfig& launch, double least_bytes);

}  // namespace tcgemm::plan
