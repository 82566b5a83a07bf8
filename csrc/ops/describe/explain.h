// The fields that the answers of explain, check_layout and _plan share.
#pragma once

#include "ops/json.h"
#include "plan/explain.h"

namespace tcgemm::ops {

// Adds the fields of a plan, as explain, check_layout and tcgemm.info.plan have them.
void add_facts(JsonObject& object, const plan::Facts& facts);

}  // namespace tcgemm::ops
