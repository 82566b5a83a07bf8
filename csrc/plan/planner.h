// Problem + Device -> Plan: the planner estimates every candidate of the catalog and picks
// the cheapest. This is host code without CUDA, so every plan can be made and tested on a machine
// without a GPU. explain.h explains a plan.
#pragma once

#include <string>
#include <string_view>

#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// `kernel` restricts the choice to configs whose name contains it ("sm80", "128x256"); empty means
// all, and the choice of tcgemm.tune (tuned.h) before the cheapest. Throws std::runtime_error with
// a full sentence if no kernel of this build fits.
Plan make_plan(const Problem& problem, const Device& device, std::string_view kernel = {});

// Has the result no contiguous rows, and would its bits change if the kernel computed its
// transpose? Then the call computes a row-major result and copies it: which way a kernel computes
// it, and where the sums of slices lie, would depend on the strides. Stores of single elements took
// 3.5 times as long as row-major ones, the copy makes it 2.1. `kernel`: see make_plan. A call with
// a filter never copies.
bool copies_result(const Problem& problem, std::string_view kernel);

// The problem with the types that the plan's kernel multiplies: s8 where passes convert int4.
Problem multiplied(const Problem& problem, const Plan& plan);

// Microseconds of the plan's arithmetic at the sustained rate of the tensor cores.
double compute_time(const Problem& problem, const Plan& plan, const Device& device);
// Microseconds of its traffic at the sustained rate of the memory.
double memory_time(const Plan& plan, const Device& device);

// The device of core/device.h with this name (case-insensitive), or a null pointer.
const Device* find_device(std::string_view name);
std::string device_names();

}  // namespace tcgemm::plan
