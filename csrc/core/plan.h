// What was decided for a Problem: passes before the product, one kernel of the catalog, its grid
// and workspace.
//
//   Problem --make_plan--> Plan --launch--> [prepare a, b] [sums of a] [sums of b] kernel
//
//   f32 in parts (core/split.h):
//       [prepare a, b] split first, second  kernel (f16)  kernel (bf16)  repair (f32)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/problem.h"
#include "core/split.h"

namespace tcgemm {

// Of what lies in a workspace, in bytes.
inline constexpr std::size_t kAlignment = 256;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// One pass that copies an operand, any strides, into a K-major matrix with a 16-byte pitch.
struct Prepare {
  Matrix source;          // rows x k, as the product reads it: b is seen as n x k
  DType to = DType::f32;  // of the copy: that of the source, or bf16 from f32
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::int64_t pitch = 0;  // elements between rows of the copy
  std::int64_t spare = 0;  // rows behind the last that may be read, whatever they hold
  std::size_t offset = 0;  // of the copy in the workspace, bytes
};

// The matrix (rows x k) that the product reads after the pass, in a workspace at `address`.
inline Matrix prepared(const Prepare& pass, std::uintptr_t address) {
  return {address + pass.offset, pass.to, pass.pitch, 1,
          pass.batch == 1 ? 0 : pass.rows * pass.pitch};
}

// Sums along k of an operand, which zero points of the other one need: batch x rows of s32.
struct Sums {
  Matrix source;  // rows x k
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::size_t offset = 0;  // in the workspace, bytes
};

enum class Bound : std::uint8_t { compute, memory, launch };

constexpr const char* name(Bound bound) {
  return bound == Bound::compute ? "compute" : bound == Bound::memory ? "memory" : "launch";
}

// How one kernel of the catalog runs.
struct Run {
  int kernel = -1;  // row of the catalog; -1: nothing to launch
  int cluster = 1;  // blocks along m that share b by multicast
  int grid = 0;     // blocks, persistent for sm90a
  int group = 8;    // rows of clusters (sm90a) or tiles (sm80) that are walked together
  std::int64_t tiles_m = 0;
  std::int64_t tiles_n = 0;
  StoreTma store_tma = StoreTma::no;
  bool vector_a = false;  // not sm90a's TMA: operands are read 16 bytes at a time
  bool vector_b = false;
  double waves = 0;         // tiles over multiprocessors
  double microseconds = 0;  // estimated
};

// An f32 operand and its blob: what the split passes make of it.
//
//   verdict of a blob of its own | notes | ranges | parts
struct SplitPass {
  Matrix source;          // rows x k, any strides
  bool mn_major = false;  // of source and parts
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::int64_t pitch = 0;  // elements between lines of a part
  // Of its blob in the workspace, bytes; of an operand with f16 parts made before, of the place for
  // bf16 parts.
  std::size_t offset = 0;
  Prepared made;

  std::int64_t lines() const { return mn_major ? k : rows; }
  std::int64_t distance() const { return batch * lines() * pitch; }  // elements between parts
};

// Offsets in the blob of an operand with room for this many parts.
struct BlobLayout {
  std::size_t notes, ranges, parts, bytes;
};

inline BlobLayout blob_layout(const SplitPass& pass, int parts) {
  BlobLayout layout{};
  layout.notes = kAlignment;
  layout.ranges = layout.notes + aligned(kSplitNotes * sizeof(std::uint32_t));
  layout.parts = layout.ranges + aligned(std::size_t(pass.batch) * pass.rows * sizeof(Range));
  layout.bytes = layout.parts + aligned(std::size_t(parts) * pass.distance() * 2);
  return layout;
}

// The first of the parts of an operand, rows x k, that lie at `address`.
inline Matrix first_part(const SplitPass& pass, int parts, std::uintptr_t address) {
  const DType type = parts == kF16Parts ? DType::f16 : DType::bf16;
  const std::int64_t next = pass.lines() * pass.pitch;
  if (pass.mn_major) return {address, type, 1, pass.pitch, next};
  return {address, type, pass.pitch, 1, next};
}

// The problem of a kernel that multiplies parts.
inline Problem in_parts(const Problem& problem, const Matrix& a, const Matrix& b, int parts) {
  Problem other = problem;
  other.parts = parts;
  other.a = a;
  other.b = transposed(b);
  other.input_a = other.input_b = a.dtype;
  return other;
}

struct Split {
  SplitPass a, b;
  bool bf16 = false;  // decided already
  Run other;          // for what f16 does not serve: bf16 parts, or f64; none where bf16 is decided
  Run repair;
  std::size_t verdict = 0;  // offsets in the workspace
  std::size_t flags = 0;
  std::size_t flag_bytes = 0;
};

struct Plan : Run {
  bool transposed = false;  // the kernel computes out^T = b^T a^T
  std::optional<Prepare> prepare_a;
  std::optional<Prepare> prepare_b;
  std::optional<Sums> sums_a;  // where there is a zero_b
  std::optional<Sums> sums_b;
  std::optional<Split> split;  // f32 operands in parts
  std::size_t workspace = 0;   // bytes
  double bytes = 0;            // that have to move through device memory
  Bound bound = Bound::launch;
};

}  // namespace tcgemm
