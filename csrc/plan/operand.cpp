// Reading operands: majors, what keeps TMA from them, and the copy that mends it.
#include "plan/operand.h"

#include <algorithm>

namespace tcgemm::plan {
namespace {

constexpr double kSector = 8.0;        // bytes that an element of a strided source moves, at least
constexpr double kMemoryShare = 0.75;  // of the copy rate that a transposing copy reaches

int alignment_of(std::uintptr_t address) {
  int alignment = 1;
  while (alignment < kMostAligned && address % (2 * alignment) == 0) alignment *= 2;
  return alignment;
}

Obstacle obstacle(const GemmOperand& operand, std::int64_t lines, std::int64_t pitch) {
  const Matrix& matrix = operand.matrix;
  if (matrix.address % kVectorBytes != 0) return Obstacle::base;
  if (lines > 1 && pitch == 0) return Obstacle::zero_pitch;
  if (lines > 1 && !whole_vectors(pitch, matrix.dtype)) return Obstacle::pitch;
  if (operand.batch > 1 && !whole_vectors(matrix.stride_batch, matrix.dtype))
    return Obstacle::batch_pitch;
  if (operand.sparse && operand.rows % kSparseRows != 0) return Obstacle::rows;
  return Obstacle::none;
}

// A matrix that serves every batch is read once.
std::int64_t copies(const GemmOperand& operand) {
  return operand.matrix.stride_batch == 0 ? 1 : operand.batch;
}

double read_time(double elements, DType type, const OperandLayout& reading, const Device& device) {
  const double size = reading.strided ? std::max<double>(bytes(type), kSector) : bytes(type);
  return elements * size / (device.memory_rate * kMemoryShare) * 1e6;
}

}  // namespace

GemmOperand operand_a(const Problem& problem) {
  return {'a',
          problem.a,
          problem.input_a,
          problem.m,
          problem.stored_k_a(),
          problem.batch,
          problem.sparse_a.has_value()};
}

GemmOperand operand_b(const Problem& problem) {
  return {
      'b',           transposed(problem.b),       problem.input_b, problem.n, problem.stored_k_b(),
      problem.batch, problem.sparse_b.has_value()};
}

OperandLayout analyze_layout(const GemmOperand& operand) {
  const Matrix& matrix = operand.matrix;
  OperandLayout reading;
  reading.alignment = alignment_of(matrix.address);
  // The stride of a dimension of size 1 says nothing: both majors may fit, and the readable one is
  // taken.
  const bool k_major = matrix.stride_col == 1 || operand.k <= 1;
  const bool mn_major = matrix.stride_row == 1 || operand.rows <= 1;
  const Obstacle as_k = obstacle(operand, operand.rows, matrix.stride_row);
  const Obstacle as_mn = obstacle(operand, operand.k, matrix.stride_col);
  reading.either =
      operand.k == 0 || (k_major && mn_major && as_k == Obstacle::none && as_mn == Obstacle::none);
  if (k_major && (as_k == Obstacle::none || !mn_major || as_mn != Obstacle::none)) {
    reading.pitch = matrix.stride_row;
    reading.obstacle = as_k;
  } else if (mn_major) {
    reading.major = Major::MN;
    reading.pitch = matrix.stride_col;
    reading.obstacle = as_mn;
  } else {
    reading.strided = true;
    reading.pitch = matrix.stride_row;
    reading.obstacle = Obstacle::strided;
  }
  return reading;
}

RepackPass repack_pass(const GemmOperand& operand) {
  RepackPass pass;
  pass.source = operand.matrix;
  pass.to = operand.converts() ? operand.input : operand.matrix.dtype;
  pass.rows = operand.rows;
  pass.k = operand.k;
  pass.batch = copies(operand);
  pass.pitch = line_pitch(operand.k, pass.to);
  if (operand.sparse) pass.spare = kSparseRows - 1;
  return pass;
}

std::int64_t line_pitch(std::int64_t elements, DType type) {
  constexpr std::int64_t kLineBytes = 128;
  const std::int64_t size = bytes(type);
  const std::int64_t unit = (elements * size >= 8 * kLineBytes ? kLineBytes : kVectorBytes) / size;
  return (elements + unit - 1) / unit * unit;
}

std::size_t workspace_bytes(const RepackPass& pass) {
  return std::size_t(pass.batch * pass.rows + pass.spare) * pass.pitch * bytes(pass.to);
}

double estimate_us(const RepackPass& pass, const OperandLayout& reading, const Device& device) {
  const double elements = double(pass.batch) * double(pass.rows) * double(pass.k);
  return read_time(elements, pass.source.dtype, reading, device) +
         double(workspace_bytes(pass)) / (device.memory_rate * kMemoryShare) * 1e6;
}

SumPass sum_pass(const GemmOperand& operand) {
  SumPass pass;
  pass.source = operand.matrix;
  pass.rows = operand.rows;
  pass.k = operand.k;
  pass.batch = copies(operand);
  return pass;
}

std::size_t workspace_bytes(const SumPass& pass) {
  return std::size_t(pass.batch) * pass.rows * sizeof(std::int32_t);
}

double estimate_us(const SumPass& pass, const OperandLayout& reading, const Device& device) {
  const double elements = double(pass.batch) * double(pass.rows) * double(pass.k);
  return read_time(elements, pass.source.dtype, reading, device);
}

}  // namespace tcgemm::plan
