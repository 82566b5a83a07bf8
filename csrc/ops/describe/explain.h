// The operators explain and check_layout. They describe what a GPU would do with a call, and use
// the same checks and the same planner as the call.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <string>

#include "core/device.h"
#include "ops/arguments.h"
#include "ops/json.h"
#include "plan/explain.h"

namespace tcgemm::ops {

// The GPU that a call with these arguments runs on, or null for the default GPU.
using DeviceOf = const Device* (*)(const Arguments& arguments);

// Adds the fields of a plan, as explain, check_layout and tcgemm.info.plan have them.
void add_facts(JsonObject& object, const plan::Facts& facts);

// JSON: the text, and the fields of plan::Facts if a kernel is launched.
std::string describe(Op op, const Arguments& arguments, DeviceOf device_of);

template <Op op, DeviceOf device_of>
void describe_kernel(std::uint64_t* stack, std::uint64_t, std::uint64_t) {
  stack[0] = box_bytes(describe(op, unbox(parameters(op), false, stack), device_of));
}

template <DeviceOf device_of>
void register_describe(torch::stable::detail::StableLibrary& library) {
  library.impl("check_layout", describe_kernel<Op::check_layout, device_of>);
  library.impl("explain", describe_kernel<Op::explain, device_of>);
}

}  // namespace tcgemm::ops
