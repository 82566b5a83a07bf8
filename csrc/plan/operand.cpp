// Operand analysis: major, TMA eligibility, and the repack pass where TMA cannot read it.
#include "plan/operand.h"

#include <algorithm>

#include "core/integer.h"

namespace tcgemm::plan {
namespace {

constexpr double kSector = 8.0;        // bytes that one element of a strided source moves at least
constexpr double kMemoryShare = 0.75;  // of the copy rate, which a transposing copy reaches

int base_alignment(std::uintptr_t address) {
  int alignment = 1;
  while (alignment < kMaxAlignment && address % (2 * alignment) == 0) alignment *= 2;
  return alignment;
}

// The obstacle if the operand is read as `outer` rows (or k) with this leading dimension.
Obstacle obstacle(const GemmOperand& operand, std::int64_t outer, std::int64_t pitch) {
  const Matrix& matrix = operand.matrix;
  if (matrix.address % kVectorBytes != 0) return Obstacle::base;
  if (outer > 1 && pitch == 0) return Obstacle::zero_pitch;
  if (outer > 1 && !whole_vectors(pitch, matrix.dtype)) return Obstacle::pitch;
  if (operand.batch > 1 && !whole_vectors(matrix.stride_batch, matrix.dtype))
    return Obstacle::batch_pitch;
  if (operand.sparse && operand.rows % kSparseRows != 0) return Obstacle::rows;
  return Obstacle::none;
}

// A matrix that is broadcast over the batch is stored, and read, once.
std::int64_t stored_batches(const GemmOperand& operand) {
  return operand.matrix.stride_batch == 0 ? 1 : operand.batch;
}

double read_time(double elements, DType type, const OperandLayout& layout, const Device& device) {
  const double size = bits(type) / 8.0;
  return elements * (layout.strided ? std::max(size, kSector) : size) /
         (device.memory_rate * kMemoryShare) * 1e6;
}

}  // namespace

GemmOperand operand_a(const Problem& problem) {
  return {'a',
          problem[Slot::a],
          problem.input_a,
          problem.m,
          problem.stored_k_a(),
          problem.batch,
          problem.has(Slot::sparse_a),
          problem.has_packed_weight()};
}

GemmOperand operand_b(const Problem& problem) {
  return {'b',
          transposed(problem[Slot::b]),
          problem.input_b,
          problem.n,
          problem.stored_k_b(),
          problem.batch,
          problem.has(Slot::sparse_b),
          problem.has_packed_weight()};
}

OperandLayout analyze_layout(const GemmOperand& operand) {
  const Matrix& matrix = operand.matrix;
  OperandLayout layout;
  layout.alignment = base_alignment(matrix.address);
  // The stride of a dimension of size 1 has no meaning, so both majors may fit. The readable one is
  // chosen.
  const bool k_major = matrix.stride_col == 1 || operand.k <= 1;
  const bool mn_major = matrix.stride_row == 1 || operand.rows <= 1;
  const Obstacle as_k = obstacle(operand, operand.rows, matrix.stride_row);
  const Obstacle as_mn = obstacle(operand, operand.k, matrix.stride_col);
  layout.any_major =
      operand.k == 0 || (k_major && mn_major && as_k == Obstacle::none && as_mn == Obstacle::none);
  if (k_major && (as_k == Obstacle::none || !mn_major || as_mn != Obstacle::none)) {
    layout.pitch = matrix.stride_row;
    layout.obstacle = as_k;
  } else if (mn_major) {
    layout.major = Major::MN;
    layout.pitch = matrix.stride_col;
    layout.obstacle = as_mn;
  } else {
    layout.strided = true;
    layout.pitch = matrix.stride_row;
    layout.obstacle = Obstacle::strided;
  }
  return layout;
}

RepackPass repack_pass(const GemmOperand& operand) {
  RepackPass pass;
  pass.source = operand.matrix;
  pass.to = operand.converts() ? operand.input : operand.matrix.dtype;
  pass.rows = operand.rows;
  pass.k = operand.k;
  pass.batch = stored_batches(operand);
  pass.pitch = vector_pitch(operand.k, pass.to);
  if (operand.sparse) pass.spare = kSparseRows - 1;
  return pass;
}

std::int64_t vector_pitch(std::int64_t elements, DType type) {
  constexpr std::int64_t kLineBytes = 128;
  const bool is_long = bytes_of(elements, type) >= 8 * kLineBytes;
  return round_up(elements, (is_long ? kLineBytes : kVectorBytes) * 8 / bits(type));
}

std::size_t workspace_bytes(const RepackPass& pass) {
  return std::size_t(bytes_of((pass.batch * pass.rows + pass.spare) * pass.pitch, pass.to));
}

double estimate_us(const RepackPass& pass, const OperandLayout& layout, const Device& device) {
  const double elements = double(pass.batch) * double(pass.rows) * double(pass.k);
  return read_time(elements, pass.source.dtype, layout, device) +
         double(workspace_bytes(pass)) / (device.memory_rate * kMemoryShare) * 1e6;
}

SumPass sum_pass(const GemmOperand& operand) {
  return {operand.matrix, operand.rows, operand.k, stored_batches(operand)};
}

std::size_t workspace_bytes(const SumPass& pass) {
  return std::size_t(pass.batch) * pass.rows * sizeof(std::int32_t);
}

double estimate_us(const SumPass& pass, const OperandLayout& layout, const Device& device) {
  const double elements = double(pass.batch) * double(pass.rows) * double(pass.k);
  return read_time(elements, pass.source.dtype, layout, device);
}

}  // namespace tcgemm::plan
