// The operator _plan: Problem -> Plan -> JSON, for a GPU by name, without tensors.
#pragma once

#include <torch/csrc/stable/library.h>

namespace tcgemm::ops {

void register_plan(torch::stable::detail::StableLibrary& library);

}  // namespace tcgemm::ops
