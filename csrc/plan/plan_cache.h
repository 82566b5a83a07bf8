// Plans that this thread made before: a search takes 2 to 3 microseconds of the host, a fifth of
// what the call of a small product takes.
#pragma once

#include "core/arch.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

using MakePlan = Plan (*)(const Problem& problem, const Device& device);

// What make(problem, device) returns, which must depend on nothing else, and on addresses by their
// alignment alone. `device` is known by its address. Plans with passes are made every time: they
// know where operands lie.
Plan cached_plan(const Problem& problem, const Device& device, MakePlan make);

}  // namespace tcgemm::plan
