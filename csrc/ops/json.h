// The answers of explain, check_layout and build_info: JSON in a uint8 tensor.
//
// torch 2.11 leaks its own copy of every string that an operator returns. It frees a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tcgemm::ops {

// The text in quotes, with escapes.
std::string json_string(std::string_view text);

// The StableIValue of a new CPU tensor with these bytes.
std::uint64_t box_bytes(std::string_view text);

}  // namespace tcgemm::ops
