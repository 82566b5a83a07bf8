// The choices of tcgemm.tune: a table of this process, which Python fills from a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/device.h"
#include "core/problem.h"

namespace tcgemm::plan {

// Types, layout and sizes of the product, in words. The epilogue and `out` are no part of it, so
// that no bit depends on them. Empty for products that are not tuned: float32 in other types than
// tf32, products with a strided operand, and products without work.
std::string product_name(const Problem& problem);

// The name under which the choices for a GPU are kept: its name in the table of known GPUs, if the
// GPU is one of them.
std::string tuned_device(const Device& device);

// Adds or replaces the choice for a product. False, and no change, if `filter` does not begin with
// the whole name of a row of the catalog.
bool set_tuned(const std::string& device, const std::string& product, const std::string& filter);
void clear_tuned();

// Changes with the table; 0 while it has never had a choice.
std::uint64_t tuned_generation();

// The choice: "row@cluster/slices", as make_plan takes it.
std::optional<std::string> find_tuned(const Problem& problem, const Device& device);

}  // namespace tcgemm::plan
