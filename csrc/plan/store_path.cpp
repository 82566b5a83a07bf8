// The choice of the store path. tile/store.cuh and kernels/sm90/kernel.cuh implement the paths.
#include "plan/store_path.h"

#include "core/operands.h"

namespace tcgemm::plan {
namespace {

// The matrices of which the fused epilogue adds one.
constexpr SlotSet kMatrixAddends = {Slot::c, Slot::residual};

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
  const bool whole_boxes = config.tile_n() % (1024 / bits(type)) == 0;
  return bits(type) >= 16 && (whole_boxes || config.has_narrow_box()) &&
         whole_vectors(problem.n, type) && is_row_major(problem);
}

// Can a kernel load two adjacent scales at once, from each even index, in every matrix of the
// batch?
bool can_load_pairs(const Operand& scale, std::int64_t batch) {
  return scale.stride_col == 1 && scale.shift_col == 0 &&
         scale.address % (2 * sizeof(float)) == 0 && (batch == 1 || scale.stride_batch % 2 == 0);
}

bool can_unroll_bias(const GemmConfig& config, const Problem& problem) {
  const Matrix& bias = problem[Slot::bias];
  const bool along_row = bias.stride_row == 0 && bias.stride_col == 1 && config.vector_bytes() > 0;
  return along_row || (bias.stride_col == 0 && config.interleaved_rows());
}

bool is_addend_in_vectors(const Problem& problem, Slot slot, int bits_of_addend = 16) {
  const Matrix& addend = problem[slot];
  return bits(addend.dtype) == bits_of_addend && addend.stride_col == 1 &&
         is_vectorizable(addend, problem.m, problem.n, problem.batch);
}

// Has EpiloguePath::columns the terms? z and an addend must have columns of vectors, as the result.
bool can_transpose(const GemmConfig& config, const Problem& problem) {
  if (problem.has_any(kZeroPoints)) return false;
  const int width = bits(problem[Slot::out].dtype);
  if (width == 32 ? problem[Slot::out].dtype != DType::f32 || config.input != DType::tf32
                  : bits(config.input) == 32)
    return false;
  // Its gelu is an approximation for results of at most 16 bits.
  if (width == 32 && problem.activation == Activation::gelu) return false;
  const SlotSet addends = problem.operands.given() & kMatrixAddends;
  if (addends == kMatrixAddends || (width == 8 && (!addends.empty() || problem.has(Slot::z))))
    return false;
  for (const Slot slot : addends)
    if (!is_addend_in_vectors(transposed(problem), slot, width)) return false;
  if (problem.has(Slot::bias) && problem[Slot::bias].stride_col != 0 &&
      !can_unroll_bias(config, problem))
    return false;
  const bool column_scales = problem.has(Slot::scale_b) && problem[Slot::scale_b].stride_col != 0;
  if (column_scales && !can_load_pairs(problem[Slot::scale_b], problem.batch)) return false;
  // Scales that are not in shared memory are read for 8 columns at once.
  const bool shares_bias = problem.has(Slot::bias) && problem[Slot::bias].stride_col != 0;
  if (column_scales && (shares_bias || config.vector_bytes() == 0) && problem.n % 8 != 0)
    return false;
  if (!problem.has(Slot::z)) return true;
  const Operand& z = problem[Slot::z];
  return bits(z.dtype) == width &&
         is_vectorizable(transposed(z), problem.n, problem.m, problem.batch);
}

bool stores_columns_by_tma(const GemmConfig& config, const Problem& problem) {
  const DType type = problem[Slot::out].dtype;
  if (!whole_vectors(problem.m, type) || !is_column_major(problem)) return false;
  if (config.has_kernel(EpiloguePath::columns)) return can_transpose(config, problem);
  return config.tma_stores_columns() && type == config.column_store_dtype() &&
         problem.has_default_epilogue();
}

// The epilogue of tile/unrolled.cuh that has the terms: fused or plain, or rolled if neither has.
EpiloguePath vector_path(const GemmConfig& config, const Problem& problem, StorePath path) {
  constexpr EpiloguePath kNeither = EpiloguePath::rolled;
  const bool has_plain = config.has_kernel(EpiloguePath::plain);
  if (!has_plain || problem.has_any(kEpilogueTerms - kAddends)) return kNeither;
  if (problem[Slot::out].dtype == DType::s32)
    return problem.has_default_epilogue() ? EpiloguePath::plain : kNeither;
  if (problem.has(Slot::bias) && !can_unroll_bias(config, problem)) return kNeither;
  // Its gelu is an approximation for results of 16 bits.
  if (problem.activation == Activation::gelu && bits(problem[Slot::out].dtype) > 16)
    return kNeither;
  const SlotSet addends = problem.operands.given() & kMatrixAddends;
  if (addends == kMatrixAddends) return kNeither;
  for (const Slot slot : addends)
    if (path != StorePath::tma_rows || !is_addend_in_vectors(problem, slot)) return kNeither;
  // Scales of blocks belong to the mainloop.
  const bool column_scales = problem.has(Slot::scale_b) && !problem.block_scaled() &&
                             problem[Slot::scale_b].stride_col != 0;
  if (column_scales && !can_load_pairs(problem[Slot::scale_b], problem.batch)) return kNeither;
  // The general variant of tile/unrolled.cuh.
  const bool scaled = problem.alpha != 1.0 || problem.has_any(kOperandScales);
  const bool general = !addends.empty() || (scaled && bits(config.input) != 8);
  const bool fused = general || is_transcendental(problem.activation);
  if (problem.has(Slot::z)) {
    // The plain epilogue stores no second matrix. The fused one stores it in vectors of 16 bits.
    const Operand& z = problem[Slot::z];
    const bool stores_z = fused && path == StorePath::tma_rows && !config.interleaved_rows() &&
                          bits(z.dtype) == 16 && bits(config.input) != 8 &&
                          is_vectorizable(z, problem.m, problem.n, problem.batch);
    if (!stores_z) return kNeither;
  }
  if (!fused) return EpiloguePath::plain;
  return config.has_kernel(EpiloguePath::fused) ? EpiloguePath::fused : kNeither;
}

}  // namespace

StorePath store_path(const GemmConfig& config, const Problem& problem) {
  if (config.uses_tma() && stores_rows_by_tma(config, problem)) return StorePath::tma_rows;
  if (config.uses_tma() && stores_columns_by_tma(config, problem)) return StorePath::tma_columns;
  if (config.interleaved_rows() && is_column_major(problem)) return StorePath::column_pairs;
  return store_path_of_sums(problem);
}

StorePath store_path_of_sums(const Problem& problem) {
  return is_row_major(problem) ? StorePath::vectors : StorePath::elements;
}

EpiloguePath epilogue_path(const GemmConfig& config, const Problem& problem, StorePath path) {
  if (path == StorePath::tma_columns)
    return config.has_kernel(EpiloguePath::columns) ? EpiloguePath::columns : EpiloguePath::plain;
  const DType type = problem[Slot::out].dtype;
  if (path == StorePath::column_pairs) {
    if (type == config.accumulator && problem.has_default_epilogue()) return EpiloguePath::direct;
    return bits(type) == 16 ? vector_path(config, problem, path) : EpiloguePath::rolled;
  }
  const DType wide = config.accumulator == DType::s32 ? DType::s32 : DType::f32;
  const bool has_store = bits(type) == 16 || (type == wide && !config.interleaved_rows());
  return path == StorePath::tma_rows && has_store ? vector_path(config, problem, path)
                                                  : EpiloguePath::rolled;
}

}  // namespace tcgemm::plan
