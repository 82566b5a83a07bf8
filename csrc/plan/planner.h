// Problem + Device -> Plan: candidates from the catalog, the cost of each, the cheapest, and why.
// Host code without CUDA, so that every plan can be made and tested on a machine without a GPU.
#pragma once

#include <string>
#include <string_view>

#include "core/arch.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// `kernel` restricts the choice to catalog rows whose name contains it ("sm80", "128x256"); empty
// means all. Throws std::runtime_error with a full sentence when no kernel of this build fits.
Plan make_plan(const Problem& problem, const Device& device, std::string_view kernel = {});

// Microseconds that the tensor cores take for the plan's arithmetic at their sustained rate.
double compute_time(const Problem& problem, const Plan& plan, const Device& device);

// Several lines of text for a person; `plan` must come from make_plan with the same arguments.
std::string explain(const Problem& problem, const Plan& plan, const Device& device);
std::string check_layout(const Problem& problem, const Plan& plan, const Device& device);

// Named devices of core/arch.h; a null pointer where there is none of that name (case-insensitive).
const Device* find_device(std::string_view name);
std::string device_names();

}  // namespace tcgemm::plan
