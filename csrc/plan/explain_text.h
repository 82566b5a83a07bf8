// Text for explain and check_layout: shapes, sizes, dtypes and epilogue terms.
#pragma once

#include <cstdint>
#include <string>

#include "catalog.h"
#include "core/problem.h"
#include "plan/operand.h"

namespace tcgemm::plan {

// printf into a string.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

using Long = long long;  // the type that %lld needs

// The shape of a, b or out: 512 x 256, or 5 x 512 x 256.
std::string shape(const Problem& problem, Slot slot);
// What groups divide: "rows", "columns" or "k"; "" if there are none.
const char* groups_name(Axis grouped);
// The groups of a grouped product, and their mean length; "" if there are none.
std::string groups_line(const Problem& problem);
// 12345678 -> 12.3 MB
std::string size(double bytes);
// The CTAs of a cluster along m, or m x n where it has several along n: "4", "2x4".
std::string cluster_name(ClusterShape shape);
// "bf16 to f32 (accumulator f32)", "e4m3 by e5m2 to bf16 ..", "f32 as tf32 to f32 ..".
std::string types(const Problem& problem);
// The scales that the mainloop applies; "" if there are none.
std::string block_scales(const Problem& problem);
// The operations between the accumulator and the result, in their order.
std::string epilogue(const Problem& problem);
// K-major, MN-major or strided; for a layout its letters and both majors.
std::string major(const OperandLayout& layout);
std::string layout(const Problem& problem);
// The origin of the rates that a GPU is planned with.
const char* rates_source(RateSource source);
// The architecture and instructions of a kernel.
std::string kernel_family(const GemmConfig& config);
// The reason why TMA and 16-byte loads cannot read an operand; "" if they can.
const char* describe(Obstacle obstacle);
// The reason why the operand is copied.
std::string why_copied(const GemmOperand& operand, const OperandLayout& layout);
// Advice to the caller on how the operand would be read faster.
std::string advice(const GemmOperand& operand, const OperandLayout& layout);

}  // namespace tcgemm::plan
