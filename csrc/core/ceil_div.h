// Integer division that rounds up, for host code.
#pragma once

#include <cstdint>

namespace tcgemm {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tcgemm
