// Problem -> the members of Params that all kernels share: operands, scales and epilogue.
#include "launch/params.h"

#include <iterator>

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

// A vector of s32 along m or n. `matrix` has one stride; the stride of the other dimension is 0.
TensorRef s32_vector(const Matrix& matrix) {
  return {pointer(matrix.address), matrix.stride_row, matrix.stride_col,
          matrix.stride_batch,     DType::s32,        false};
}

// The sums of an operand that a pass wrote, along m (`row`) or along n.
Matrix sums(const SumPass& pass, bool row, void* workspace) {
  return {reinterpret_cast<std::uintptr_t>(workspace) + pass.offset, DType::s32, row ? 1 : 0,
          row ? 0 : 1, pass.batch == 1 ? 0 : pass.rows};
}

ZeroPoints zero_points(const Problem& problem, const Plan& plan, void* workspace) {
  ZeroPoints zeros;
  zeros.k = std::int32_t(problem.k);
  if (problem.has(Slot::zero_a)) {
    zeros.zero_a = s32_vector(problem[Slot::zero_a]);
    zeros.sum_b = s32_vector(sums(*plan.passes.sums_b, false, workspace));
  }
  if (problem.has(Slot::zero_b)) {
    zeros.zero_b = s32_vector(problem[Slot::zero_b]);
    zeros.sum_a = s32_vector(sums(*plan.passes.sums_a, true, workspace));
  }
  return zeros;
}

// Adds the ones of rows and columns, which the passes have multiplied by their factors.
void add_ones(const Problem& problem, const Plan& plan, void* workspace, Epilogue& epilogue) {
  const auto source = [&](const SumPass& pass, bool row) {
    return tensor_ref(sums(pass, row, workspace), problem.m, problem.n, problem.batch);
  };
  epilogue.alpha_s32 = factors(problem.binary).pairs;
  epilogue.beta_s32 = 1;
  epilogue.sources[kC] = source(*plan.passes.sums_a, true);
  epilogue.sources[kBias] = source(*plan.passes.sums_b, false);
}

// The member of Epilogue::sources that each addend becomes.
constexpr struct {
  Slot slot;
  int source;
} kSourceOf[] = {{Slot::c, kC}, {Slot::bias, kBias}, {Slot::residual, kResidual}};
static_assert(std::size(kSourceOf) == kSources);
static_assert([] {
  SlotSet slots;
  for (const auto& row : kSourceOf) slots.insert(row.slot);
  return slots == kAddends;
}());

static_assert([] {
  constexpr std::int64_t kLargest = Divisor::kLimit - 1;
  for (const std::int64_t value : {1, 2, 3, 5, 7, 12, 66, 132, 641, 4095, 4096, 65537, 1 << 30}) {
    for (const std::int64_t near : {value, kLargest / value * value, kLargest}) {
      for (std::int64_t dividend = near - 1; dividend <= near + 1; ++dividend)
        if (dividend <= kLargest && divisor(value).quotient(dividend) != dividend / value)
          return false;
    }
  }
  return divisor(kLargest).quotient(kLargest - 1) == 0 && divisor(kLargest).quotient(kLargest) == 1;
}());

// Sets shared_vector of an epilogue that has one. EpiloguePath::columns alone shares scales beside
// a bias with a value for each row.
void share_vector(const GemmConfig& config, EpiloguePath path, Epilogue& epilogue) {
  const TensorRef& bias = epilogue.sources[kBias];
  if (config.vector_bytes() == 0) return;
  const bool shares_bias = bias.data != nullptr && bias.stride_col != 0;
  if (shares_bias || (bias.data != nullptr && path != EpiloguePath::columns)) {
    if (shares_bias) epilogue.shared_vector = bias;
  } else if (const ScaleVector& scale = epilogue.scale_b; scale.stride != 0) {
    epilogue.shared_vector.data = scale.data;
    epilogue.shared_vector.stride_batch = scale.stride_batch;
    epilogue.shares_scales = true;
  }
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
  if (!problem.has(Slot::scale_a)) return {};
  const Operand& scale = problem[Slot::scale_a];
  return {pointer<const float>(scale.address), scale.stride_row, scale.stride_col,
          scale.stride_batch, scale.shift_row};
}

ScaleVector scale_of_b(const Problem& problem) {
  if (!problem.has(Slot::scale_b)) return {};
  const Operand& scale = problem[Slot::scale_b];
  return {pointer<const float>(scale.address), scale.stride_col, scale.stride_row,
          scale.stride_batch, scale.shift_col};
}

Epilogue epilogue(const Problem& problem, const Plan& plan, const LaunchConfig& config,
                  void* workspace) {
  const Matrix& out = problem[Slot::out];
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
  for (const auto& [slot, source] : kSourceOf)
    if (problem.has(slot))
      result.sources[source] = tensor_ref(problem[slot], problem.m, problem.n, problem.batch);
  if (!problem.block_scaled()) {
    result.scale_a = scale_of_a(problem);
    result.scale_b = scale_of_b(problem);
  }
  if (problem.has(Slot::scale_out))
    result.scale_out = pointer<const float>(problem[Slot::scale_out].address);
  if (problem.has(Slot::amax)) result.amax = pointer<float>(problem[Slot::amax].address);
  result.zero_points = problem.has_any(kZeroPoints);
  if (result.zero_points) result.zeros = zero_points(problem, plan, workspace);
  result.out = pointer(out.address);
  result.out_stride_row = out.stride_row;
  result.out_stride_col = out.stride_col;
  result.out_stride_batch = out.stride_batch;
  if (!config.result_fits_l2) result.store_policy = L2Policy::evict_first;
  result.out_row_vectors = is_vectorizable(out, problem.m, problem.n, problem.batch);
  result.out_column_vectors = is_vectorizable(transposed(out), problem.n, problem.m, problem.batch);
  if (problem.has(Slot::z)) {
    const Matrix& z = problem[Slot::z];
    result.z = pointer(z.address);
    result.z_pitch = config.epilogue_path == EpiloguePath::columns ? z.stride_col : z.stride_row;
    result.z_stride_batch = z.stride_batch;
  }
  result.has_terms = problem.has_epilogue_terms();
  result.scaled = problem.alpha != 1.0 || result.scale_a.data || result.scale_b.data;
  result.scales_columns_first = plan.swap_ab && config.epilogue_path == EpiloguePath::columns;
  if (problem.adds_ones()) add_ones(problem, plan, workspace, result);
  if (config.epilogue_path == EpiloguePath::plain || config.epilogue_path == EpiloguePath::fused ||
      config.epilogue_path == EpiloguePath::columns)
    share_vector(kCatalog[config.config_index], config.epilogue_path, result);
  return result;
}

Extent extent(const Problem& problem) {
  return {std::int32_t(problem.m), std::int32_t(problem.n), std::int32_t(problem.k),
          std::int32_t(problem.batch)};
}

Slices slices(const Problem& problem, const LaunchConfig& run, int tile_k) {
  const std::int64_t blocks = ceil_div(problem.k, tile_k);
  const std::int64_t parts = run.stream_k ? run.grid / run.cluster.size() : run.slices;
  const std::int64_t total = run.stream_k ? run.stream_tiles() * blocks : blocks;
  Slices result;
  result.count = std::int32_t(parts);
  result.blocks = std::int32_t(total / parts);
  result.longer = std::int32_t(total % parts);
  result.divisor = divisor(parts);
  result.in_cluster = run.cluster_adds;
  result.stream_k = run.stream_k;
  result.tile_blocks = divisor(std::max<std::int64_t>(blocks, 1));
  result.stream_tiles = std::int32_t(run.stream_tiles());
  return result;
}

Tiling tiling(const Problem& problem, const LaunchConfig& run, bool row_major) {
  const std::int64_t rows = row_major ? 1 : std::min<std::int64_t>(run.raster_group, run.tiles_m);
  const std::int64_t last_first = (run.tiles_m - 1) / rows * rows;
  const std::int64_t matrix = run.tiles_m * run.tiles_n,
                     step = run.grid / run.launched_cluster().size();
  return {matrix * problem.batch,
          std::int32_t(problem.batch),
          std::int32_t(step / matrix),
          std::uint32_t(step % matrix),
          divisor(matrix),
          divisor(rows * run.tiles_n),
          divisor(rows),
          divisor(run.tiles_m - last_first),
          std::int32_t(last_first)};
}

}  // namespace tcgemm::launch
