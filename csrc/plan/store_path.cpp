// The choice of the store path. tile/store.cuh and kernels/sm90/kernel.cuh implement the paths.
#include "plan/store_path.h"

#include "core/operands.h"

namespace tcgemm::plan {
namespace {

// The tensors that the unrolled epilogue cannot handle.
constexpr SlotSet kNotUnrolled = kEpilogueTerms - SlotSet{Slot::bias};

bool is_row_major(const Problem& problem) {
  return is_vectorizable(problem[Slot::out], problem.m, problem.n, problem.batch);
}

bool is_column_major(const Problem& problem) {
  return is_vectorizable(transposed(problem[Slot::out]), problem.n, problem.m, problem.batch);
}

// TMA clips a box at the edge of the tensor in units of 16 bytes, so a row that ends inside a
// vector would lose elements. A tile that is narrower than a box is not stored by TMA.
bool stores_rows_by_tma(const GemmConfig& config, const Problem& problem) {
  const DType type = problem[Slot::out].dtype;
  return bits(type) >= 16 && config.tile_n() % (1024 / bits(type)) == 0 &&
         whole_vectors(problem.n, type) && is_row_major(problem);
}

bool stores_columns_by_tma(const GemmConfig& config, const Problem& problem) {
  const DType type = problem[Slot::out].dtype;
  return config.tma_stores_columns() && type == config.column_store_dtype() &&
         problem.has_default_epilogue() && whole_vectors(problem.m, type) &&
         is_column_major(problem);
}

// Can a kernel load two adjacent scales at once, from each even index, in every matrix of the
// batch?
bool can_load_pairs(const Operand& scale, std::int64_t batch) {
  return scale.stride_col == 1 && scale.shift_col == 0 &&
         scale.address % (2 * sizeof(float)) == 0 && (batch == 1 || scale.stride_batch % 2 == 0);
}

bool can_unroll_bias(const GemmConfig& config, const Problem& problem) {
  const Matrix& bias = problem[Slot::bias];
  const bool along_row = bias.stride_row == 0 && bias.stride_col == 1 &&
                         is_vectorizable(bias, problem.m, problem.n, problem.batch);
  return along_row || (bias.stride_col == 0 && config.interleaved_rows());
}

// Do the terms fit the unrolled epilogue (unrolled_epilogue in tile/store.cuh)?
bool can_unroll(const GemmConfig& config, const Problem& problem) {
  if (problem.has_any(kNotUnrolled)) return false;
  if (problem[Slot::out].dtype == DType::s32) return problem.has_default_epilogue();
  if (problem.has(Slot::bias) && !can_unroll_bias(config, problem)) return false;
  // Scales of blocks belong to the mainloop.
  const bool column_scales = problem.has(Slot::scale_b) && !problem.block_scaled() &&
                             problem[Slot::scale_b].stride_col != 0;
  if (column_scales && !can_load_pairs(problem[Slot::scale_b], problem.batch)) return false;
  return problem.activation == Activation::none || problem.activation == Activation::relu;
}

}  // namespace

StorePath store_path(const GemmConfig& config, const Problem& problem) {
  if (config.uses_tma() && stores_rows_by_tma(config, problem)) return StorePath::tma_rows;
  if (config.uses_tma() && stores_columns_by_tma(config, problem)) return StorePath::tma_columns;
  if (config.interleaved_rows() && is_column_major(problem)) return StorePath::column_pairs;
  return is_row_major(problem) ? StorePath::vectors : StorePath::elements;
}

EpiloguePath epilogue_path(const GemmConfig& config, const Problem& problem, StorePath path) {
  if (!config.uses_tma()) return EpiloguePath::rolled;
  if (path == StorePath::tma_columns) return EpiloguePath::unrolled;
  const DType type = problem[Slot::out].dtype;
  if (path == StorePath::column_pairs) {
    if (type == config.accumulator && problem.has_default_epilogue()) return EpiloguePath::direct;
    return can_unroll(config, problem) && bits(type) == 16 ? EpiloguePath::unrolled
                                                           : EpiloguePath::rolled;
  }
  const DType wide = config.accumulator == DType::s32 ? DType::s32 : DType::f32;
  const bool has_store = bits(type) == 16 || (type == wide && !config.interleaved_rows());
  return path == StorePath::tma_rows && has_store && can_unroll(config, problem)
             ? EpiloguePath::unrolled
             : EpiloguePath::rolled;
}

}  // namespace tcgemm::plan
