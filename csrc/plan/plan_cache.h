// A thread-local cache of plans. A search takes tens of microseconds of host time, longer than the
// call of a small GEMM.
#pragma once

#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

using MakePlan = Plan (*)(const Problem& problem, const Device& device);

// Returns make(problem, device), from the cache if possible. The result of `make` must depend on
// nothing else but the tuned choices, and on addresses only through their alignment. The key has
// the address of `device`.
Plan cached_plan(const Problem& problem, const Device& device, MakePlan make);

}  // namespace tcgemm::plan
