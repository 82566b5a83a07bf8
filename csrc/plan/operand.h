// How a kernel can read an operand: the one analysis that the planner, check_layout and explain
// share.
//
// Both operands are seen from k: a as m x k, b as n x k ("rows" are m or n). An operand is
//   K-major   where neighbours along k are neighbours in memory,
//   MN-major  where neighbours along m (n) are,
//   strided   where neither: a slice with a step, or an expanded dimension.
#pragma once

#include <cstdint>

#include "core/arch.h"
#include "core/plan.h"
#include "core/problem.h"

namespace tcgemm::plan {

// Tensor cores read 8-bit and tf32 operands K-major only; 16-bit ones ldmatrix and wgmma turn on
// the way, and f64 ones are loaded an element at a time.
constexpr bool k_major_only(DType input) { return bits(input) == 8 || input == DType::tf32; }

struct GemmOperand {
  char label = 'a';
  Matrix matrix;             // stride_row: along m or n, stride_col: along k
  DType input = DType::f32;  // what the tensor cores take it as
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  bool sparse = false;  // the matrix has its values, k of a row

  // f32 in memory, bf16 to the tensor cores: only a copy can be read.
  bool converts() const { return matrix.dtype == DType::f32 && input == DType::bf16; }
  bool k_major_only() const { return sparse || plan::k_major_only(input); }
};

// Why TMA, and 16-byte loads, cannot read an operand as it is; `rows` keeps TMA alone from it.
enum class Obstacle : std::uint8_t { none, strided, base, pitch, batch_pitch, zero_pitch, rows };

// Those of a sparse operand TMA reads sixteen at a time.
inline constexpr std::int64_t kSparseRows = 16;

// Bytes; addresses that are more aligned are all alike.
inline constexpr int kMostAligned = 256;

struct OperandLayout {
  bool strided = false;
  Major major = Major::K;  // of the operand in memory; K where strided
  std::int64_t pitch = 0;  // elements between lines (rows of a K-major, k of an MN-major operand)
  int alignment = 0;       // bytes, of the base address, at most kMostAligned
  Obstacle obstacle = Obstacle::none;
  bool either = false;  // with one row, or k = 1, it can be read as the other major as well

  // TMA and cp.async want the same: a 16-byte base, and lines that start at multiples of 16 bytes.
  bool direct() const { return obstacle == Obstacle::none; }
  bool reads_vectors() const { return direct() || obstacle == Obstacle::rows; }  // by cp.async
};

GemmOperand operand_a(const Problem& problem);
GemmOperand operand_b(const Problem& problem);
OperandLayout analyze_layout(const GemmOperand& operand);

// The copy that makes any operand K-major with a 16-byte pitch, of the type that the tensor cores
// take; its offset is the planner's to set.
//
// Tried instead on an H200, for rows with an odd pitch: a tensor map for every 8th (16th) row,
// whose pitch is whole words, and boxes that begin inside a word. TMA answers a first coordinate
// that is no multiple of 16 bytes with an illegal instruction, and the many small boxes alone
// cost 1.36 times the time of s8 4096^3; the copies cost 1.2.
RepackPass repack_pass(const GemmOperand& operand);
std::size_t workspace_bytes(const RepackPass& pass);
// Microseconds that it takes beside its launch, which two copies share: bytes in and out.
double estimate_us(const RepackPass& pass, const OperandLayout& reading, const Device& device);

// Elements between the lines of what a pass writes: whole words are what kernels read. Where that
// fills up less than an eighth, whole lines of L2: rows that cross one more line than they have to
// cost twice the time.
std::int64_t line_pitch(std::int64_t elements, DType type);

// The sums along k of an operand, which the other one's zero points need, and what they take.
SumPass sum_pass(const GemmOperand& operand);
std::size_t workspace_bytes(const SumPass& pass);
double estimate_us(const SumPass& pass, const OperandLayout& reading, const Device& device);

// Microseconds to launch a pass over an operand, and until the next kernel can read what it wrote.
inline constexpr double kPassLaunch = 2.5;

// Of a product's time, to turn an operand on its way to registers instead.
inline constexpr double kTransposeShare = 0.03;

}  // namespace tcgemm::plan
