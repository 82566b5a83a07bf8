// What explain and check_layout are written with: shapes, sizes, dtypes and options in words.
#pragma once

#include <cstdint>
#include <string>

#include "catalog.h"
#include "core/problem.h"
#include "plan/operand.h"

namespace tcgemm::plan {

// printf into a string.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

using Long = long long;  // what %lld takes

// 512 x 256, or 5 x 512 x 256.
std::string shape(std::int64_t batch, std::int64_t rows, std::int64_t cols);
// 12345678 -> 12.3 MB
std::string size(double bytes);
// "bf16 to f32 (accumulator f32)", "e4m3 by e5m2 to bf16 ..", "f32 as tf32 to f32 ..".
std::string types(const Problem& problem);
// Scales that the mainloop multiplies with; "" where there are none.
std::string block_scales(const Problem& problem);
// What comes between the accumulator and the result, in its order.
std::string epilogue(const Problem& problem);
// K-major, MN-major or strided; both for a layout, with its letters.
std::string major(const OperandLayout& reading);
std::string layout(const Problem& problem);
// How a kernel of this architecture works.
const char* kernel_family(const GemmConfig& config);
// Why TMA, and loads of 16 bytes, cannot read it; "" where they can.
const char* describe(Obstacle obstacle);
// Why a copy is made of the operand.
std::string why_copied(const GemmOperand& operand, const OperandLayout& reading);
// What the caller can do so that it is read faster.
std::string advice(const GemmOperand& operand, const OperandLayout& reading);

}  // namespace tcgemm::plan
