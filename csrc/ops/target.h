// The backend that a call is checked for, and the errors of a call that has none.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "ops/tensor.h"

namespace tcgemm::ops {

// `plan`: explain and check_layout describe what a GPU would do, and nothing is computed.
// `none`: no backend computes on the device of these tensors. A call with meta tensors is checked
// and gets results without values; any other is refused.
enum class Target : std::uint8_t { cpu, cuda, plan, none };

// Throws if the tensor's device has no backend. An absent tensor, a CPU and a meta tensor pass.
void refuse_device(const char* op, const View& view);

// Throws an error about the tensor's dtype. Target::none and a CPU tensor mean a quantised tensor:
// it is strided, and its dtype is not in the table of tensor.cpp.
[[noreturn]] void refuse_dtype(const char* op, const View& view);

// Throws the reason if no backend computes a call with these tensors, and none is on meta.
void check_backend(Target target, const char* op, std::initializer_list<View> views);

}  // namespace tcgemm::ops
