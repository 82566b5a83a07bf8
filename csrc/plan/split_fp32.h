// Plans of split-FP32 GEMMs: the passes that split f32 operands into 16-bit terms, the kernels that
// multiply the terms, and the layout of the workspace. core/split_fp32.h has the arithmetic.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"
#include "core/split_fp32.h"
#include "plan/operand.h"
#include "plan/select_kernel.h"

namespace tcgemm::plan {

// The smallest k for which a GEMM of f16 terms is as accurate as FP32: the terms leave out 2^-22 of
// each product, and these errors average out over k.
inline constexpr std::int64_t kLeastDepth = 256;
// The smallest k for bf16 terms. They leave out 2^-24, but they are for data where few products
// dominate a sum. For such data FP64 kernels are at least as fast as FP32 arithmetic, so bf16 terms
// must be clearly faster.
inline constexpr std::int64_t kLongDepth = 2048;
// BLAS libraries use split-K for few results with a long k, and so accumulate smaller errors. Below
// kManyResults plans use no bf16 terms, and only f16 kernels with short accumulation chains
// (kernels/sm90/mainloop/split_fp32.cuh). Up to kFewResults, or if k is long, they use only those
// of the smallest tile.
inline constexpr std::int64_t kFewResults = 1 << 19;
inline constexpr std::int64_t kManyResults = 1 << 21;

// The pass over an operand of any strides. `prepared`: its terms, if they exist already.
SplitFp32Pass split_fp32_pass(const GemmOperand& operand, const Prepared& prepared);

// Bytes of the prepared operand b with room for this many terms.
std::size_t prepared_bytes(const Problem& problem, int terms);

// The split-FP32 plan, if there is one: f16 terms, and an alternative (bf16 terms or FP64) that the
// GPU chooses if the data requires it. `problem` is in the kernels' orientation. Everything in the
// workspace gets its offset.
std::optional<Plan> plan_split_fp32(const Problem& problem, const Device& device,
                                    std::string_view filter, double least_bytes,
                                    std::int64_t least_depth);

// The kernel that computes from the f32 operands what terms cannot represent.
std::optional<LaunchConfig> cheapest_fp64_kernel(const Problem& problem, const Device& device,
                                                 Search::ConfigFilter config_filter);
inline bool has_recompute_tile(const GemmConfig& config) {
  return config.tile_m() == kRecomputeTile && config.tile_n() == kRecomputeTile;
}
// Reserves the mask of such a kernel in the workspace of a plan.
RecomputePlan recompute_plan(const LaunchConfig& kernel, const Problem& problem, Plan& plan);

// Microseconds of the split passes on normal data, without their launches.
double estimate_us(const SplitFp32Pass& pass, const Device& device);

}  // namespace tcgemm::plan
