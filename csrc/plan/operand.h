// Operand analysis: the major of an operand, whether TMA can read it, and the repack pass where it
// cannot. The planner, check_layout and explain share it.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// Tensor cores read operands of at most 8 bits, and tf32 ones, K-major only. ldmatrix and wgmma
// transpose 16-bit operands while they load them, and f64 operands are loaded one element at a
// time.
constexpr bool k_major_only(DType input) { return bits(input) <= 8 || input == DType::tf32; }

// Both operands have k as their columns: a is m x k, b is n x k ("rows" are m or n). An operand is
//   K-major   if elements that are adjacent along k are adjacent in memory,
//   MN-major  if elements that are adjacent along m (n) are adjacent in memory,
//   strided   if neither holds: a slice with a step, or an expanded dimension.
struct GemmOperand {
  char label = 'a';
  Matrix matrix;             // stride_row: along m or n, stride_col: along k
  DType input = DType::f32;  // the type that the tensor cores multiply
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  bool sparse = false;  // 2:4; the matrix has the compressed values, k in each row
  bool packed = false;  // it or the other operand is a packed weight, whose kernels have layout TN

  // f32 in memory, bf16 for the tensor cores, or int4 and s8: kernels can read only a repacked
  // copy.
  bool converts() const {
    return (matrix.dtype == DType::f32 && input == DType::bf16) ||
           (is_int4(matrix.dtype) && input == DType::s8);
  }
  bool k_major_only() const { return sparse || packed || plan::k_major_only(input); }
};

// The reason why neither TMA nor 16-byte loads can read an operand in place. `rows` prevents TMA
// alone.
enum class Obstacle : std::uint8_t { none, strided, base, pitch, batch_pitch, zero_pitch, rows };

// TMA reads the rows of a 2:4 operand in groups of 16.
inline constexpr std::int64_t kSparseRows = 16;

// Bytes; a higher alignment makes no difference.
inline constexpr int kMaxAlignment = 256;

struct OperandLayout {
  bool strided = false;
  Major major = Major::K;  // of the operand in memory; K if it is strided
  std::int64_t pitch = 0;  // leading dimension in elements: along rows if K-major, k if MN-major
  int alignment = 0;       // bytes, of the base address, at most kMaxAlignment
  Obstacle obstacle = Obstacle::none;
  bool any_major = false;  // with one row, or k = 1, it is readable as either major

  // TMA and cp.async need a base address and a leading dimension that are multiples of 16 bytes.
  bool tma_readable() const { return obstacle == Obstacle::none; }
  bool cp_async_readable() const { return tma_readable() || obstacle == Obstacle::rows; }
};

GemmOperand operand_a(const Problem& problem);
GemmOperand operand_b(const Problem& problem);
OperandLayout analyze_layout(const GemmOperand& operand);

// The pass that copies any operand to a K-major one with a 16-byte pitch, in the type that the
// tensor cores multiply. The planner sets its offset.
//
// An alternative for rows with an odd pitch was tried on an H200: one tensor map for every 8th
// (16th) row, whose pitch is whole vectors, and boxes that begin inside a vector. TMA raises an
// illegal instruction for a first coordinate that is not a multiple of 16 bytes. The many small
// boxes alone cost 1.36 times the time of s8 4096^3; the copies cost 1.2.
RepackPass repack_pass(const GemmOperand& operand);
std::size_t workspace_bytes(const RepackPass& pass);
// Microseconds for the bytes in and out, without the launch, which two copies share.
double estimate_us(const RepackPass& pass, const OperandLayout& layout, const Device& device);

// The pitch of what a pass writes, in elements: a multiple of 16 bytes, which kernels need, or of
// 128 bytes, an L2 line, if the padding is less than an eighth. A row that crosses one L2 line more
// than necessary costs twice the time.
std::int64_t vector_pitch(std::int64_t elements, DType type);

// The sums of an operand along k, which the zero points of the other operand need.
SumPass sum_pass(const GemmOperand& operand);
std::size_t workspace_bytes(const SumPass& pass);
double estimate_us(const SumPass& pass, const OperandLayout& layout, const Device& device);

// Microseconds to launch a pass over an operand and to make its results visible to the next kernel,
// whose start overlaps it on Hopper.
inline double pass_launch_us(const Device& device) {
  return device.compute_capability == 90 ? 1.2 : 2.5;
}

// Share of a GEMM's time that the RS mainloop adds to transpose an operand in registers.
inline constexpr double kTransposeShare = 0.03;

}  // namespace tcgemm::plan
