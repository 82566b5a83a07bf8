// Problem -> the members of Params that all kernels share: operands, scales and epilogue.
#include "launch/params.h"

#include <cmath>
#include <optional>

#include "catalog.h"

namespace tcgemm::launch {
namespace {

template <class T = void>
T* pointer(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// A whole number of any magnitude, modulo 2^32.
std::int32_t wrap_s32(double number) {
  return std::int32_t(std::uint32_t(std::int64_t(std::fmod(number, 4294967296.0))));
}

// A vector of s32 along m (`row`) or along n.
TensorRef s32_vector(std::uintptr_t address, bool row, std::int64_t stride,
                     std::int64_t stride_batch) {
  return {pointer(address), row ? stride : 0, row ? 0 : stride, stride_batch, DType::s32, false};
}

TensorRef sums(const SumPass& pass, bool row, void* workspace) {
  return s32_vector(reinterpret_cast<std::uintptr_t>(workspace) + pass.offset, row, 1,
                    pass.batch == 1 ? 0 : pass.rows);
}

ZeroPoints zero_points(const Problem& problem, const Plan& plan, void* workspace) {
  ZeroPoints zeros;
  zeros.k = std::int32_t(problem.k);
  if (problem.zero_a) {
    const Matrix& zero = *problem.zero_a;
    zeros.zero_a = s32_vector(zero.address, true, zero.stride_row, zero.stride_batch);
    zeros.sum_b = sums(*plan.sums_b, false, workspace);
  }
  if (problem.zero_b) {
    const Matrix& zero = *problem.zero_b;
    zeros.zero_b = s32_vector(zero.address, false, zero.stride_col, zero.stride_batch);
    zeros.sum_a = sums(*plan.sums_a, true, workspace);
  }
  return zeros;
}

// Can a kernel load two adjacent scales at once, from each even index, in every matrix of the
// batch?
bool can_load_pairs(const ScaleVector& scale, std::int64_t batch) {
  constexpr std::uintptr_t kPair = 2 * sizeof(float);
  return scale.stride == 1 && scale.shift == 0 &&
         reinterpret_cast<std::uintptr_t>(scale.data) % kPair == 0 &&
         (batch == 1 || scale.stride_batch % 2 == 0);
}

// Can the unrolled epilogue (Epilogue::unrolled) handle these terms? The kernel checks out's
// layout.
bool can_unroll(const Problem& problem, const Plan& plan, const Epilogue& epilogue) {
  if (problem.c || problem.residual || problem.zero_a || problem.zero_b || problem.scale_out ||
      problem.amax)
    return false;
  if (epilogue.out_dtype == DType::s32) return problem.has_default_epilogue();
  const TensorRef& bias = epilogue.sources[kBias];
  const bool row = bias.row_vectors && bias.stride_row == 0 && bias.stride_col == 1;
  const bool broadcast_row = bias.stride_col == 0 && kCatalog[plan.config_index].interleaved_rows();
  if (bias.data != nullptr && !row && !broadcast_row) return false;
  if (epilogue.scale_b.stride != 0 && !can_load_pairs(epilogue.scale_b, problem.batch))
    return false;
  return problem.activation == Activation::none || problem.activation == Activation::relu;
}

}  // namespace

TensorRef tensor_ref(const Matrix& matrix, std::int64_t rows, std::int64_t cols,
                     std::int64_t batch) {
  return {pointer(matrix.address),
          matrix.stride_row,
          matrix.stride_col,
          matrix.stride_batch,
          matrix.dtype,
          is_vectorizable(matrix, rows, cols, batch),
          is_vectorizable(transposed(matrix), cols, rows, batch)};
}

ScaleVector scale_of_a(const Problem& problem) {
  if (!problem.scale_a) return {};
  const auto& [values, shift_row, shift_col] = *problem.scale_a;
  return {pointer<const float>(values.address), values.stride_row, values.stride_col,
          values.stride_batch, shift_row};
}

ScaleVector scale_of_b(const Problem& problem) {
  if (!problem.scale_b) return {};
  const auto& [values, shift_row, shift_col] = *problem.scale_b;
  return {pointer<const float>(values.address), values.stride_col, values.stride_row,
          values.stride_batch, shift_col};
}

Epilogue epilogue(const Problem& problem, const Plan& plan, void* workspace) {
  const auto optional_ref = [&](const std::optional<Matrix>& matrix) {
    return matrix ? tensor_ref(*matrix, problem.m, problem.n, problem.batch) : TensorRef{};
  };
  const Matrix& out = problem.out;
  Epilogue result;
  result.alpha = float(problem.alpha);
  result.beta = float(problem.beta);
  result.alpha_f64 = problem.alpha;
  result.beta_f64 = problem.beta;
  if (out.dtype == DType::s32) {
    result.alpha_s32 = wrap_s32(problem.alpha);
    result.beta_s32 = wrap_s32(problem.beta);
  }
  result.activation = problem.activation;
  result.out_dtype = out.dtype;
  result.sources[kC] = optional_ref(problem.c);
  result.sources[kBias] = optional_ref(problem.bias);
  result.sources[kResidual] = optional_ref(problem.residual);
  if (!problem.block_scaled()) {
    result.scale_a = scale_of_a(problem);
    result.scale_b = scale_of_b(problem);
  }
  if (problem.scale_out) result.scale_out = pointer<const float>(problem.scale_out->address);
  if (problem.amax) result.amax = pointer<float>(problem.amax->address);
  result.zero_points = problem.zero_a || problem.zero_b;
  if (result.zero_points) result.zeros = zero_points(problem, plan, workspace);
  result.out = pointer(out.address);
  result.out_stride_row = out.stride_row;
  result.out_stride_col = out.stride_col;
  result.out_stride_batch = out.stride_batch;
  result.out_row_vectors = is_vectorizable(out, problem.m, problem.n, problem.batch);
  result.out_column_vectors = is_vectorizable(transposed(out), problem.n, problem.m, problem.batch);
  result.has_terms = problem.has_epilogue_terms();
  result.scaled = problem.alpha != 1.0 || result.scale_a.data || result.scale_b.data;
  result.unrolled = can_unroll(problem, plan, result);
  return result;
}

Extent extent(const Problem& problem) {
  return {std::int32_t(problem.m), std::int32_t(problem.n), std::int32_t(problem.k),
          std::int32_t(problem.batch)};
}

Tiling tiling(const Problem& problem, const LaunchConfig& run) {
  return {std::int32_t(run.tiles_m), std::int32_t(run.tiles_n), run.raster_group,
          run.tiles_m * run.tiles_n * problem.batch};
}

}  // namespace tcgemm::launch
