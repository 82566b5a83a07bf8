// The time in which a TMA + wgmma kernel stores its result: a part of the cost model in
// sm90_time.cpp.
#pragma once

#include "catalog.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// Clocks to store an element of the tile.
double store_clocks(const GemmConfig& config, const Problem& problem, const LaunchConfig& launch);

}  // namespace tcgemm::plan
