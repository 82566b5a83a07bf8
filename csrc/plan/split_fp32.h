// Products of f32 operands in 16-bit parts: the passes that make them, the kernels that multiply
// them, and where everything lies. core/split_fp32.h has the arithmetic.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "core/arch.h"
#include "core/plan.h"
#include "core/problem.h"
#include "plan/operand.h"

namespace tcgemm::plan {

// The least depth for which products of f16 parts are as accurate as f32's: what they leave out is
// 2^-22 of each product, and averages out over k.
inline constexpr std::int64_t kLeastDepth = 256;
// Those of bf16 leave out 2^-24, but they serve data of which few products make a sum. There f64 is
// at least as fast as f32's own arithmetic, so they have to be worth it.
inline constexpr std::int64_t kLongDepth = 2048;
// Few results of a long k are what BLAS libraries split along k, and so add up with smaller errors.
// For less than kManyResults there are no bf16 parts, and f16 kernels with short chains
// (kernels/sm90/mainloop/split_fp32.cuh): those of the smallest tile up to kFewResults, or where k is long.
inline constexpr std::int64_t kFewResults = 1 << 19;
inline constexpr std::int64_t kManyResults = 1 << 21;

// The pass over an operand of any strides; `made`: its parts, where they were made before.
SplitFp32Pass split_fp32_pass(const GemmOperand& operand, const std::optional<Prepacked>& made);

// Of a blob of problem.b that is made before the product, with room for this many parts.
std::size_t prepacked_bytes(const Problem& problem, int terms);

// The plan of products of parts, if there is one: f16's, and bf16's in case the data asks for them.
// `problem` is as the kernels see it; what lies in the workspace has its place.
std::optional<Plan> plan_split_fp32(const Problem& problem, const Device& device,
                                    std::string_view filter, double least_bytes,
                                    std::int64_t least_depth);

// Microseconds of the split passes beside their launches, on normal data.
double estimate_us(const SplitFp32Pass& pass, const Device& device);

}  // namespace tcgemm::plan
